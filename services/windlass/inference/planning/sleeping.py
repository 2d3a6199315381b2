"""Sleep of engines that nobody asks for: when it is due, and which of them end for others."""

from collections import defaultdict
from dataclasses import replace
from functools import partial

from windlass.inference.domain import Engine
from windlass.inference.planning.round import Round
from windlass.inference.planning.yielding import give_up

# Words of agents.
NO_GPU, NO_MEMORY = "WaitingForGpu", "OutOfMemory"


def is_due(state: Round, engine: Engine) -> bool:
    """Returns True if an engine should sleep, or go on sleeping.

    No request has asked for its version, nor for an adapter of it, for as long as its serving
    says. One that does not answer is left to start first.
    """
    seconds = state.sleep_seconds(engine.version_id)
    if not (seconds and engine.sleeps):
        return False
    since = max(state.asked_at(engine.version_id), engine.created_at)
    return state.now - since >= seconds and (engine.asleep or state.answers(engine))


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
