"""Sleep of engines that nobody asks for: when it is due, and which of them end for others."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from windlass.api.clusters.v1 import clusters_pb2
from windlass.inference.domain import Engine
from windlass.inference.planning.round import Round
from windlass.inference.planning.yielding import give_up

# Words of agents.
NO_GPU, NO_MEMORY = "WaitingForGpu", "OutOfMemory"


def is_due(state: Round, engine: Engine) -> bool:
    """Returns True if an engine should sleep, or go on sleeping.

    No request has asked for its version, nor for an adapter of it, for as long as its serving
    says. One that does not answer is left to start first, unless it waits for a GPU.
    """
    seconds = state.settings.sleep_seconds(engine.version_id)
    if not (seconds and engine.sleeps):
        return False
    since = max(state.asked_at(engine.version_id), engine.created_at)
    may = engine.asleep or state.answers(engine) or state.view.status(engine).reason == NO_GPU
    return state.now - since >= seconds and may


def give_way(state: Round) -> None:
    """Ends a sleeping engine wherever another one has waited for its place, one at a time.

    So too for one that found too little memory, of which a sleeping one keeps a little. It begins
    again at once, before who ended is back. What no request asks for makes nobody end.
    """
    sleepers = defaultdict[str, list[Engine]](list)
    for engine in state.running.values():
        if engine.asleep:
            sleepers[engine.cluster_id].append(engine)
    for waiting in tuple(state.running.values()):
        if waiting.cluster_id in sleepers and _lacks_what_they_have(state, waiting):
            _end_one_for(state, waiting, sleepers[waiting.cluster_id])


def has_room(state: Round, version: str) -> bool:
    """Returns True if a cluster has a place for one more engine of a version, or lends it."""
    candidates = state.candidates(version)
    is_free = any(not state.is_full(one) for one in candidates)
    return is_free or _lender(state, version, candidates) is not None


def make_room(state: Round, version: str) -> None:
    """Ends a sleeping engine if no cluster has another place for one more engine of a version."""
    candidates = state.candidates(version)
    if state.names[version].stack or any(not state.is_full(one) for one in candidates):
        return
    lender = _lender(state, version, candidates)
    if lender is not None:
        give_up(state, lender)


def _lender(state: Round, version: str, among: Iterable[clusters_pb2.Cluster]) -> Engine | None:
    """Returns who ends for a version that requests ask for; None if nobody sleeps there."""
    if state.is_kept_alone(version):
        return None
    there = {one.id for one in among}
    lenders = (
        one
        for one in state.running.values()
        if one.asleep and one.cluster_id in there and one.version_id != version
    )
    return min(lenders, key=partial(_order, state), default=None)


def _end_one_for(state: Round, waiting: Engine, sleepers: list[Engine]) -> None:
    version = waiting.version_id
    there = [one for one in sleepers if one.version_id != version]
    if not there or version not in state.wants or state.is_kept_alone(version):
        return
    state.waits.note_place(waiting, state.now)
    state.promised.add(waiting.cluster_id)
    victim = min(there, key=partial(_order, state))
    sleepers.remove(victim)
    give_up(state, victim)
    if waiting.failed_at:
        again = replace(waiting, failed_at=0.0, retry_at=0.0, error="")
        state.revise(waiting, state.renewed(again))


def _order(state: Round, engine: Engine) -> tuple[float, str]:
    """Returns the sort key of sleeping engines: the one wanted longest ago ends first."""
    return state.asked_at(engine.version_id), engine.id


def _lacks_what_they_have(state: Round, waiting: Engine) -> bool:
    # One in a cluster that is away may have started there.
    if waiting.asleep or waiting.is_adopted or not state.view.reaches(waiting.cluster_id):
        return False
    reason = state.view.status(waiting).reason
    # Their GPUs it may have already.
    lacks = reason == NO_MEMORY if waiting.failed_at else reason != NO_GPU
    return lacks and state.waits.is_due_a_place(waiting, state.now)
