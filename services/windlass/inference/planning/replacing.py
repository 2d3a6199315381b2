"""Replacement of engines that run otherwise than they should, without a moment that lacks one.

A new engine starts beside the old ones, in a place beyond theirs. Once it answers it takes the
place of one of them, which ends; and so on until none is left. Where there is no room for one
more, an old engine makes room for the new one.
"""

from dataclasses import replace

from windlass.api.clusters.v1 import clusters_pb2
from windlass.inference.domain import AWAITED_SECONDS, Engine
from windlass.inference.planning import sleeping
from windlass.inference.planning.round import Round, Slot
from windlass.inference.planning.yielding import lack

# A new engine that its cluster has not started for so long has no room beside the old one.
ROOM_SECONDS = 30.0


def exchange(state: Round) -> None:
    """Gives the places of outdated engines to new ones that answer, or that get no room."""
    for engine in tuple(state.running.values()):
        if not is_replacement(state, engine):
            continue
        if state.answers(engine) or _lacks_room(state, engine):
            outdated = _outdated(state, engine.version_id)
            victim = min(outdated, key=lambda one: (state.answers(one), -one.replica))
            state.end(victim)
            state.move(engine, victim.replica)


def promote(state: Round) -> None:
    """Gives the number of an engine that does not answer to one beyond its places that does.

    Those with the highest numbers end when fewer are wanted, and they may be all that answers.
    """
    for engine in sorted(state.running.values(), key=lambda one: one.replica):
        version = engine.version_id
        if version not in state.wants or version not in state.names:
            continue
        is_beyond = engine.replica >= state.replicas(version)
        if is_beyond and state.answers(engine) and not is_replacement(state, engine):
            silent = [one for one in state.engines_of(version) if not state.answers(one)]
            if silent:
                # Rather what waits for its cluster than what starts.
                victim = max(silent, key=lambda one: state.waits.seconds(one, state.now))
                state.end(victim)
                state.move(engine, victim.replica)


def is_replacement(state: Round, engine: Engine) -> bool:
    """Returns True for an engine beyond the places of its version that will replace another."""
    version = engine.version_id
    if version not in state.wants or version not in state.names:
        return False
    is_beyond = engine.replica >= state.replicas(version)
    return is_beyond and not is_outdated(state, engine) and bool(_outdated(state, version))


def is_outdated(state: Round, engine: Engine) -> bool:
    """Returns True if an engine runs otherwise, or elsewhere, than its model's serving says."""
    if engine.training and engine.version_id in state.trained:
        # What it has learned is nowhere else.
        return False
    is_elsewhere = not state.settings.weight(engine.version_id, engine.cluster_id)
    configured = state.configured(engine)
    if state.sleeps_untold(engine):
        configured = replace(configured, sleeps=engine.sleeps)
    is_dedicated = state.names[engine.version_id].is_dedicated
    return is_elsewhere or engine != configured or engine.is_dedicated != is_dedicated


def makes_room(state: Round, engine: Engine) -> bool:
    """Returns True if an outdated engine has to end before the one that replaces it starts.

    One that does not answer ends at once. Of the others one after the other: all others of its
    version answer meanwhile.
    """
    version = engine.version_id
    if version not in state.wants or not is_outdated(state, engine):
        return False
    if not state.candidates(version):
        return False
    if not state.answers(engine):
        return True
    if _has_replacement(state, version) or place_beside(state, version) is not None:
        return False
    answering = [one for one in state.engines_of(version) if state.answers(one)]
    return len(answering) == state.replicas(version)


def place_beside(state: Round, version: str) -> Slot | None:
    """Returns the place for a new engine beside outdated ones; None where none is due or fits."""
    if not _outdated(state, version) or _has_replacement(state, version):
        return None
    if state.now - state.used_at(version) > AWAITED_SECONDS:
        # Nobody waits for it: it starts anew at the next request.
        return None
    is_adopted = bool(state.names[version].stack)
    has_room = bool(state.candidates(version)) if is_adopted else sleeping.has_room(state, version)
    if not has_room or lack(state, version, yields=False):
        return None
    return version, state.replicas(version)


def _outdated(state: Round, version: str) -> list[Engine]:
    return [one for one in state.engines_of(version) if is_outdated(state, one)]


def _has_replacement(state: Round, version: str) -> bool:
    return any(
        engine.version_id == version and is_replacement(state, engine)
        for engine in state.running.values()
    )


def _lacks_room(state: Round, engine: Engine) -> bool:
    is_pending = state.view.status(engine).phase == clusters_pb2.PHASE_PENDING
    return is_pending and state.now - engine.created_at > ROOM_SECONDS
