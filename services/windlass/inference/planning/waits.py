"""Memory of how long engines have waited for their clusters."""

from collections.abc import Iterable

from windlass.api.clusters.v1 import clusters_pb2
from windlass.inference.domain import Engine, View
from windlass.workload_phases import TERMINAL_PHASES


class Waits:
    """Times since which engines wait, in Unix seconds, and the clusters that were asked besides.

    A planner that is new has seen nobody wait.
    """

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        # The cluster that was asked last, by version.
        self.asked: dict[str, str] = {}

    def observe(self, now: float, engines: Iterable[Engine], view: View) -> None:
        """Notes which of the running engines wait at this moment, and forgets what is gone."""
        engines = tuple(engines)
        self._since = {one.id: self._since.get(one.id, now) for one in engines if _waits(one, view)}
        versions = {one.version_id for one in engines}
        self.asked = {one: last for one, last in self.asked.items() if one in versions}

    def seconds(self, engine: Engine, now: float) -> float:
        """Seconds that an engine has waited without a break; 0 if it does not."""
        return now - self._since.get(engine.id, now)


def _waits(engine: Engine, view: View) -> bool:
    """Returns True if its cluster holds it back, or if it has failed there."""
    phase = view.status(engine).phase
    return bool(engine.failed_at) or phase in {clusters_pb2.PHASE_PENDING, *TERMINAL_PHASES}
