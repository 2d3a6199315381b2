"""Sleep of engines that nobody asks for: when it is due, and which of them end for others."""

from dataclasses import replace

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
    for waiting in tuple(state.running.values()):
        version = waiting.version_id
        if waiting.asleep or version not in state.wants or state.is_kept_alone(version):
            continue
        # One in a cluster that is away may have started there.
        if not state.view.reaches(waiting.cluster_id):
            continue
        there = [one for one in state.running.values() if _may_end_for(one, waiting)]
        if there and _lacks_what_they_have(state, waiting):
            state.waits.note_place(waiting, state.now)
            state.promised.add(waiting.cluster_id)
            give_up(state, min(there, key=lambda one: (state.asked_at(one.version_id), one.id)))
            if waiting.failed_at:
                again = replace(waiting, failed_at=0.0, retry_at=0.0, error="")
                state.revise(waiting, state.renewed(again))


def _may_end_for(engine: Engine, waiting: Engine) -> bool:
    is_beside = engine.cluster_id == waiting.cluster_id and not waiting.is_adopted
    return engine.asleep and is_beside and engine.version_id != waiting.version_id


def _lacks_what_they_have(state: Round, waiting: Engine) -> bool:
    reason = state.view.status(waiting).reason
    # Their GPUs it may have already.
    lacks = reason == NO_MEMORY if waiting.failed_at else reason != NO_GPU
    return lacks and state.waits.is_due_a_place(waiting, state.now)
