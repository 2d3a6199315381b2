"""The place of a process in a cluster: on a lease where the operator shares devices, else alone."""

from collections.abc import Callable

from windlass.tuning.leases.seating import LeasedSeating
from windlass.tuning.leases.terms import LeaseTerms
from windlass.tuning.pods.places import TrainingClusters, TrainingPlace
from windlass.tuning_api.trainers.elsewhere import PodPlace, PodWish
from windlass.tuning_api.trainers.remote.launched import LaunchedProcess
from windlass.tuning_api.trainers.seats import Seat, SeatedWorkload, SeatRefused


class ChosenSeating:
    """Implements `PodPlace` by one that is chosen once the cluster is known."""

    def __init__(
        self,
        wish: PodWish,
        clusters: TrainingClusters,
        terms_of: Callable[[TrainingPlace], LeaseTerms | None],
        leased: Callable[[PodWish, TrainingPlace, LeaseTerms], LeasedSeating],
        alone: Callable[[PodWish], PodPlace],
    ):
        self._wish = wish
        self._clusters = clusters
        self._terms_of = terms_of
        self._leased = leased
        self._alone = alone
        self._chosen: PodPlace | None = None

    async def take(self, workload: SeatedWorkload, project_id: str) -> Seat:
        """A seat there. Raises SeatRefused, SeatAwaited."""
        if self._chosen is None:
            self._chosen = await self._choice(project_id)
        return await self._chosen.take(workload, project_id)

    async def launch(self, seat: Seat) -> LaunchedProcess:
        """Starts the process; raises OSError, TrainerLost."""
        if self._chosen is None:
            raise TypeError("there is no seat yet")
        return await self._chosen.launch(seat)

    async def give_up(self, workload: SeatedWorkload) -> None:
        """Leaves the line, if this waits in one."""
        if self._chosen is not None:
            await self._chosen.give_up(workload)

    async def _choice(self, project_id: str) -> PodPlace:
        place = await self._clusters.place(self._wish.cluster, self._wish.project(project_id))
        terms = self._terms_of(place)
        if terms is None:
            return self._alone(self._wish)
        if not place.cluster.capacity.shares_claims:
            raise SeatRefused(
                f"The cluster {place.cluster.name} cannot share devices: its agent has no "
                "accelerator, or is of a release before that could share one."
            )
        return self._leased(self._wish, place, terms)
