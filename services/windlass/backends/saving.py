"""Intervals at which a training saves the state that an interrupted job resumes from."""

from typing import Annotated

from msgspec import Meta

SaveSteps = Annotated[int, Meta(ge=1, le=10_000_000)]
# At most a week, which in practice is never.
SaveMinutes = Annotated[float, Meta(gt=0, le=10_080)]

DEFAULT_SAVE_MINUTES = 10.0
STEPS_OPTION = "--save-state-steps"
MINUTES_OPTION = "--save-state-minutes"


def saving_options(steps: int | None, minutes: float | None) -> tuple[str, ...]:
    """Returns the options of a trainer's entry for what was asked for; nothing for the default."""
    given = ((STEPS_OPTION, steps), (MINUTES_OPTION, minutes))
    return tuple(text for name, value in given if value is not None for text in (name, str(value)))
