"""Second engines in other clusters, for those that their own cluster does not start.

The first keeps its place in its cluster's queue. The one that answers first takes its number
among the engines of the model, and the other ends.
"""

from collections import Counter
from collections.abc import Sequence

from windlass.api.clusters.v1 import clusters_pb2
from windlass.inference.domain import AWAITED_SECONDS, Engine
from windlass.inference.planning import replacing
from windlass.inference.planning.round import Round
from windlass.inference.planning.yielding import lack

# An engine waits so long in one cluster before another one is asked.
ASK_SECONDS = 30.0


def is_substitute(state: Round, engine: Engine) -> bool:
    """Returns True for the engine beyond the places of its version that may take one of them."""
    version = engine.version_id
    if engine.replica != state.replicas(version) or replacing.is_outdated(state, engine):
        return False
    if _waiting(state, version):
        return True
    if state.waits.asked.get(version) != engine.cluster_id:
        return False
    # The one that it was made for has been admitted; whichever answers first stays.
    silent = any(not state.answers(one) for one in state.engines_of(version))
    return silent and state.view.status(engine).phase == clusters_pb2.PHASE_STARTING


def moves_on(state: Round, engine: Engine) -> bool:
    """Returns True if the substitute waits as well, and yet another cluster could be asked."""
    if not (is_substitute(state, engine) and state.waits.seconds(engine, state.now) > ASK_SECONDS):
        return False
    return any(one.id != engine.cluster_id for one in _others(state, engine.version_id))


def cluster_elsewhere(state: Round, version: str) -> clusters_pb2.Cluster | None:
    """Returns the cluster where a substitute should start; None where none is due or fits."""
    if (version, state.replicas(version)) in state.running or not _waiting(state, version):
        return None
    if state.now - state.used_at(version) > AWAITED_SECONDS:
        return None
    others = _others(state, version)
    if not others or lack(state, version, yields=False):
        return None
    # One after the other, so that each is asked in its turn.
    last = state.waits.asked.get(version, "")
    same = Counter(one.cluster_id for one in state.engines_of(version))
    return min(others, key=lambda one: (same[one.id], one.id <= last, one.id))


def _others(state: Round, version: str) -> list[clusters_pb2.Cluster]:
    """The clusters with room in which none of the version's engines waits in its place."""
    theirs = {one.cluster_id for one in _waiting(state, version)}
    return [
        one for one in state.candidates(version) if one.id not in theirs and not state.is_full(one)
    ]


def _waiting(state: Round, version: str) -> Sequence[Engine]:
    """The engines in the places of a version that have waited for long."""
    engines = state.engines_of(version)
    return [one for one in engines if state.waits.seconds(one, state.now) > ASK_SECONDS]
