"""Schedule of saved training states."""

from windlass.backends.saving import saving_options
from windlass_agent.runner.trainers.saving import SaveClock, split_options


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_ten_minutes_are_lost_at_most_unless_others_are_asked_for() -> None:
    now = Clock()
    clock = SaveClock(now=now)
    now.seconds = 599.9
    assert not clock.is_due(1000)
    now.seconds = 600
    assert clock.is_due(1001)
    clock.restart()
    assert not clock.is_due(1002)


def test_steps_are_counted_from_the_start_of_the_job() -> None:
    clock = SaveClock(steps=5, minutes=1, now=Clock())
    clock.restart()
    assert [step for step in range(1, 12) if clock.is_due(step)] == [5, 10]


def test_a_trainers_entry_is_told_what_was_asked_for_and_nothing_else() -> None:
    assert saving_options(None, None) == ()
    flags = ["--save_steps", "500", "--bf16", "false"]
    clock, others = split_options([*saving_options(4, 2.5), *flags])
    assert others == flags
    assert clock.is_due(4)
    assert not clock.is_due(5)
