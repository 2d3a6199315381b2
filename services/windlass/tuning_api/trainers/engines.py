"""Engines of distributions that train all parameters, by the names of their entry points."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

from windlass.tuning_api.trainers.port import Trainer
from windlass.tuning_api.trainers.records import TrainableModel

ENTRY_POINT_GROUP = "windlass.trainers"


class UnknownEngine(ValueError):
    """A name that no installed distribution has, or whose engine cannot be loaded."""


@dataclass(frozen=True, kw_only=True)
class FullTrainerSpec:
    """A model for an engine to train: where its files lie, and how many processes it may have."""

    model: TrainableModel
    folder: Path
    processes: int = 1


# Makes the trainer of one run; `model` is what it says of itself.
TrainerFactory = Callable[[FullTrainerSpec], Trainer]


def engine_names() -> list[str]:
    """The names of what is installed; nothing is loaded."""
    return sorted(entry_points(group=ENTRY_POINT_GROUP).names)


def engine_named(name: str) -> TrainerFactory:
    """Loads an engine; raises UnknownEngine."""
    for entry in entry_points(group=ENTRY_POINT_GROUP, name=name):
        try:
            found: TrainerFactory = entry.load()
        except Exception as error:
            raise UnknownEngine(f"the engine {name!r} cannot be loaded: {error}") from error
        return found
    installed = ", ".join(engine_names()) or "none"
    raise UnknownEngine(f"no engine is named {name!r}; installed: {installed}")
