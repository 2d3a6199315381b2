"""Trainers of other machines: what is wished there, and the place that it gets."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from windlass.tuning_api.trainers.records import NO_RESOURCES, PodResources, TrainableModel
from windlass.tuning_api.trainers.remote.launched import TrainerLauncher
from windlass.tuning_api.trainers.seats import Seating

Role = Literal["trainer", "sampler"]


@dataclass(frozen=True, slots=True)
class PodWish:
    """A process of the tuning service that a cluster is to run."""

    role: Role
    model: TrainableModel
    # The one run or session that it is for; empty: adapters of all who name the model.
    owner: str
    # Name or id of the cluster.
    cluster: str
    engine: str = ""
    processes: int = 1
    max_rank: int = 1
    resources: PodResources = NO_RESOURCES
    # In whose place there it is; empty: that of the project that asks first.
    host_project: str = ""

    @property
    def is_full(self) -> bool:
        """True of a process that trains, or samples from, all of a model."""
        return bool(self.owner)

    def project(self, asking: str) -> str:
        """The project in whose place it is."""
        return self.host_project or asking


class PodPlace(Seating, TrainerLauncher, Protocol):
    """Gives one process its seat, and starts it there."""


# Makes the place of what is wished.
Elsewhere = Callable[[PodWish], PodPlace]
