"""Substitutes: second engines in other clusters, for those that their own cluster holds back.

The first keeps its place in its cluster's queue. The one that answers first takes its number
among the engines of the model, and the other ends.
"""

from collections import Counter

from windlass.api.clusters.v1 import clusters_pb2
from windlass.inference.domain import AWAITED_SECONDS, Engine
from windlass.inference.planning import replacing
from windlass.inference.planning.round import SUBSTITUTE, Round
from windlass.inference.planning.yielding import has_room
from windlass.workload_phases import TERMINAL_PHASES


def is_substitute(state: Round, engine: Engine) -> bool:
    """Returns True for a substitute that may still take a place of its version."""
    if engine.replica != SUBSTITUTE or replacing.is_outdated(state, engine):
        return False
    silent = [one for one in state.engines_of(engine.version_id) if not state.answers(one)]
    # Of two that start, whichever answers first stays.
    return any(_is_held_back(state, one) for one in silent) or (
        bool(silent) and not _is_held_back(state, engine)
    )


def ask_elsewhere(state: Round, version: str) -> tuple[Engine | None, clusters_pb2.Cluster] | None:
    """Returns the cluster where a substitute should start, and the one that ends for it.

    None where no engine has waited for long, or no other cluster could be asked.
    """
    held_back = [one for one in state.engines_of(version) if state.waits.is_long(one, state.now)]
    if not held_back or state.now - state.used_at(version) > AWAITED_SECONDS:
        return None
    present = state.running.get((version, SUBSTITUTE))
    if present is not None and not state.waits.is_long(present, state.now):
        return None
    cluster = _next(state, version, present, {one.cluster_id for one in held_back})
    if cluster is None or (present is None and not has_room(state, version)):
        return None
    return present, cluster


def _next(
    state: Round, version: str, present: Engine | None, asked: set[str]
) -> clusters_pb2.Cluster | None:
    """The cluster to ask: one with few engines of the version; of those, each in its turn."""
    same = Counter(one.cluster_id for one in state.engines_of(version))
    last = present.cluster_id if present else ""
    others = [
        one
        for one in state.candidates(version)
        if one.id not in asked
        and one.id != last
        and not state.is_full(one)
        # A place in a queue is given up for none that is worse.
        and (not last or same[one.id] <= same[last])
    ]
    return min(others, key=lambda one: (same[one.id], one.id <= last, one.id), default=None)


def _is_held_back(state: Round, engine: Engine) -> bool:
    """Returns True if an engine has not been admitted, or has failed."""
    phase = state.view.status(engine).phase
    return bool(engine.failed_at) or phase in {clusters_pb2.PHASE_PENDING, *TERMINAL_PHASES}
