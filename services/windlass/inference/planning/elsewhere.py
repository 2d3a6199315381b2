"""Substitutes: second engines in other clusters, for those that their own cluster holds back.

The first keeps its place in its cluster's queue. The one that answers first takes its number
among the engines of the model, and the other ends.
"""

from typing import NamedTuple

from windlass.api.clusters.v1 import clusters_pb2
from windlass.inference.domain import AWAITED_SECONDS, Engine
from windlass.inference.places import CandidateCluster
from windlass.inference.planning import replacing
from windlass.inference.planning.candidates import candidates_of
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


class OtherCluster(NamedTuple):
    """A cluster where a substitute should start, why, and the one that ends for it."""

    cluster_id: str
    reason: str
    present: Engine | None


def ask_elsewhere(state: Round, version: str) -> OtherCluster | None:
    """Returns the cluster that should be asked for a substitute.

    None where no engine has waited for long, or no other cluster could be asked.
    """
    held_back = [one for one in state.engines_of(version) if state.waits.is_long(one, state.now)]
    if not held_back or state.now - state.used_at(version) > AWAITED_SECONDS:
        return None
    present = state.running.get((version, SUBSTITUTE))
    if present is not None and not state.waits.is_long(present, state.now):
        return None
    found = _next(state, version, present, {one.cluster_id for one in held_back})
    if found is None or (present is None and not has_room(state, version)):
        return None
    free = f"; {found.room.words}" if found.room.words else ""
    return OtherCluster(
        found.cluster_id, f"another cluster did not admit one in time{free}", present
    )


def _next(
    state: Round, version: str, present: Engine | None, held_back: set[str]
) -> CandidateCluster | None:
    """The cluster to ask: each in its turn, those with room in the quota before others.

    Whatever agents say of their quotas, none is asked twice before all others were.
    """
    others = {one.cluster_id: one for one in candidates_of(state, version)}
    last = present.cluster_id if present else ""
    there, asked = others.get(last), state.waits.asked(version)

    def may_be_asked(one: CandidateCluster) -> bool:
        if one.cluster_id in held_back or one.cluster_id == last or one.is_full:
            return False
        # A place in a queue is given up for none that is worse.
        return there is None or one.same <= there.same or _has_room_now(one, there)

    def turn(one: CandidateCluster) -> tuple[int, bool, int, bool, str]:
        waits = not one.room.is_there
        return asked[one.cluster_id], waits, one.same, not one.has_files, one.cluster_id

    return min(filter(may_be_asked, others.values()), key=turn, default=None)


def _has_room_now(one: CandidateCluster, there: CandidateCluster) -> bool:
    return one.room.is_there and not there.room.is_there


def _is_held_back(state: Round, engine: Engine) -> bool:
    """Returns True if an engine has not been admitted, or has failed."""
    phase = state.view.status(engine).phase
    return bool(engine.failed_at) or phase in {clusters_pb2.PHASE_PENDING, *TERMINAL_PHASES}
