"""Memory of how long engines have waited for their clusters to admit them."""

from collections import Counter
from collections.abc import Iterable

from windlass.api.clusters.v1 import clusters_pb2
from windlass.core.backoff import doubled
from windlass.inference.domain import AWAITED_SECONDS, Engine, View

# An engine waits so long in one cluster before another one is asked, then twice as long in that.
ASK_SECONDS = 30.0
MAX_ASK_SECONDS = 600.0
# An engine waits so long for its place before one that sleeps there ends, and before the next.
PLACE_SECONDS = 5.0


class Waits:
    """Times since which engines wait, in Unix seconds, and how often others were asked for them.

    A planner that is new has seen nobody wait.
    """

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        # Clusters by version, and how often each was.
        self._asked: dict[str, Counter[str]] = {}
        # When another one ended for each.
        self._given: dict[str, float] = {}

    def observe(self, now: float, engines: Iterable[Engine], view: View) -> None:
        """Notes which of the running engines wait at this moment, and forgets what is gone."""
        phases = [(one, view.status(one).phase) for one in engines]
        waiting = [one for one, phase in phases if phase == clusters_pb2.PHASE_PENDING]
        self._since = {one.id: self._since.get(one.id, now) for one in waiting}
        starting = {one.id for one, phase in phases if phase != clusters_pb2.PHASE_RUNNING}
        self._given = {one: at for one, at in self._given.items() if one in starting}
        versions = {one.version_id for one in waiting}
        self._asked = {one: counts for one, counts in self._asked.items() if one in versions}

    def seconds(self, engine: Engine, now: float) -> float:
        """Seconds that an engine has waited; 0 if it does not."""
        return now - self._since.get(engine.id, now)

    def is_long(self, engine: Engine, now: float) -> bool:
        """Returns True if another cluster should be asked for an engine."""
        asked = self.asked(engine.version_id).total()
        patience = doubled(ASK_SECONDS, asked, longest=MAX_ASK_SECONDS)
        return self.seconds(engine, now) > patience

    def asked(self, version_id: str) -> Counter[str]:
        """Counts how often each cluster was asked since engines of a version wait."""
        return self._asked.get(version_id, Counter())

    def ask(self, version_id: str, cluster_id: str) -> None:
        """Notes that one more cluster is asked."""
        self._asked.setdefault(version_id, Counter())[cluster_id] += 1

    def is_due_a_place(self, engine: Engine, now: float) -> bool:
        """Returns True if a sleeping engine should end for one that waits, or has failed.

        For a failure only once: what ended a moment before it may not have been gone yet.
        """
        given = self._given.get(engine.id, 0.0)
        if engine.failed_at:
            return engine.failed_at - given > PLACE_SECONDS
        return now - max(self._since.get(engine.id, now), given) > PLACE_SECONDS

    def note_place(self, engine: Engine, now: float) -> None:
        """Notes that another one ends for it."""
        self._given[engine.id] = now

    def was_given_place(self, engine: Engine, now: float) -> bool:
        """Returns True if another one ended for it lately, and it does not run yet."""
        return now - self._given.get(engine.id, 0.0) < AWAITED_SECONDS
