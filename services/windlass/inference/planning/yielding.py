"""Bounds of how many engines run, and which of them make room for others."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from windlass.inference.domain import (
    EVICTABLE_SECONDS,
    FAIR_SECONDS,
    WAITED_SECONDS,
    Engine,
    Name,
    engine_bound,
)
from windlass.inference.planning.round import SUBSTITUTE, Round


class _Bound(NamedTuple):
    """The most engines of a project, an organization or the installation at once."""

    scope: str
    identifier: str
    most: int


def trim(state: Round) -> None:
    """Ends kept engines beyond the bounds, which may be lower than when they were set."""
    # Counted once: there may be a thousand engines, and a quota for each project.
    numbers = Counter(one for engine in state.counted() for one in _bounds_of(state, engine))
    if all(number <= one.most for one, number in numbers.items()):
        return
    spare = [
        engine
        for engine in state.counted()
        if engine.replica or state.is_kept_alone(engine.version_id)
    ]
    spare.sort(key=lambda one: (not one.asleep, -one.replica, -one.created_at, one.id))
    while spare:
        bounds = _bounds_of(state, spare[0])
        if all(numbers[one] <= one.most for one in bounds):
            del spare[0]
            continue
        # One of its project counts for the same bounds.
        lower = [one for one in spare if _goes_before(state, one, spare[0])]
        rank = state.settings.rank
        victim = min(lower, key=lambda one: rank(one.version_id), default=spare[0])
        spare.remove(victim)
        state.end(victim)
        numbers.subtract(bounds)


def lack(state: Round, version: str, *, yields: bool) -> str:
    """Returns why a version may have no engine more; empty if it may.

    If others should yield to it, idle ones make room first.
    """
    if state.names[version].stack:
        return ""
    for scope, own, bound in _scopes(state, state.names[version]):
        if len(own) >= bound and not _make_room(state, version, own, yields=yields):
            return f"The {scope}'s {bound} engines are in use, which is its quota."
    most = state.policy.max_engines
    everyone = state.counted()
    if len(everyone) >= most and not _make_room(state, version, everyone, yields=yields):
        return f"All {most} engines of the installation are in use."
    return ""


def has_room(state: Round, version: str) -> bool:
    """Returns True if a version may have an engine more without another's end."""
    within = all(len(own) < bound for _, own, bound in _scopes(state, state.names[version]))
    return within and len(state.counted()) < state.policy.max_engines


def _make_room(state: Round, version: str, among: Sequence[Engine], *, yields: bool) -> bool:
    """Ends one of the engines for another; returns False where none may end."""
    made = {engine.id for engine in state.changes.creates}
    # Their models have engines beside them, in the places that are theirs.
    substitutes = [
        one
        for one in among
        if one.replica == SUBSTITUTE and one.id not in made and not state.answers(one)
    ]
    if substitutes:
        state.end(substitutes[0])
        return True
    return yields and _evict(state, version, among=among)


def _scopes(state: Round, one: Name | Engine) -> Iterator[tuple[str, list[Engine], int]]:
    """Yields whose quotas bound the engines of a model: the word, their engines, the bound."""
    for scope, identifier, most in _quotas_of(state, one):
        own = [
            engine
            for engine in state.counted()
            if engine.project_id and getattr(engine, f"{scope}_id") == identifier
        ]
        yield scope, own, most


def _bounds_of(state: Round, engine: Engine) -> list[_Bound]:
    """The bounds that an engine counts for: its quotas, and that of the installation."""
    return [*_quotas_of(state, engine), _Bound("installation", "", state.policy.max_engines)]


def _quotas_of(state: Round, one: Name | Engine) -> Iterator[_Bound]:
    """Yields the quotas that bound the engines of a model; none bounds those for everyone."""
    if not one.project_id:
        return
    for scope in ("project", "organization"):
        identifier: str = getattr(one, f"{scope}_id")
        if most := engine_bound(state.quotas, scope, identifier):
            yield _Bound(scope, identifier, most)


def _evict(state: Round, version: str, *, among: Sequence[Engine]) -> bool:
    """Gives up an engine, unless all are busy or wanted later than this.

    One that sleeps comes first, kept running or not. Of those that are idle, one of the project
    that has the most, wanted longest ago. A project that has none and has waited gets a busy
    one of a project that has several. What no request asks for takes the place of its own
    project's engines alone, and lets those sleep that are kept.
    """
    bound = min(state.now - EVICTABLE_SECONDS, state.used_at(version))
    is_asked = not state.is_kept_alone(version)
    # What has just started was wanted by somebody, who may wait for it, and might have to yield
    # to this one, and so on. One of the version itself would only change its number.
    settled = [one for one in among if state.now - one.created_at > WAITED_SECONDS]
    old = [one for one in settled if one.version_id != version]
    if not is_asked:
        project = state.names[version].project_id
        old = [engine for engine in old if engine.project_id == project]
    idle = [one for one in old if _is_idle(state, one, bound) or (one.asleep and is_asked)]
    if not idle and _waits_without_any(state, version):
        idle = [one for one in old if _is_spare(state, one) or state.share(one.project_id) > 1]
    if not idle:
        return False
    victim = min(
        idle,
        key=lambda engine: (
            not engine.asleep,
            -state.share(engine.project_id),
            state.used_at(engine.version_id),
            -engine.replica,
        ),
    )
    # Of its project what has the lowest priority goes, and by the same order.
    own = [one for one in idle if _goes_before(state, one, victim)]
    give_up(state, min(own, key=lambda one: state.settings.rank(one.version_id), default=victim))
    return True


def _goes_before(state: Round, engine: Engine, other: Engine) -> bool:
    """Returns True for an engine of the same project, awake or not as the other, of a lower
    priority.
    """
    same = (engine.project_id, engine.asleep) == (other.project_id, other.asleep)
    return same and state.settings.rank(engine.version_id) < state.settings.rank(other.version_id)


def give_up(state: Round, engine: Engine) -> None:
    """Ends an engine for another, and the wants of a version that has no other one left."""
    state.end(engine)
    if not state.engines_of(engine.version_id):
        # Or the next round would start it again.
        dropped = state.wants.pop(engine.version_id, [])
        state.changes.dropped += [want for want in dropped if want.serving is None]


def _is_spare(state: Round, engine: Engine) -> bool:
    """Returns True for an engine beside others of its model; it may be left with a high number."""
    version = engine.version_id
    return bool(engine.replica) and sum(slot[0] == version for slot in state.running) > 1


def _is_idle(state: Round, engine: Engine, bound: float) -> bool:
    """Returns True if nobody misses it: not wanted since, or kept and unable to start."""
    fails = engine.failed_at and state.is_kept_alone(engine.version_id)
    return bool(fails) or state.used_at(engine.version_id) < bound


def _waits_without_any(state: Round, version: str) -> bool:
    project = state.names[version].project_id
    since = min(want.since for want in state.wants[version])
    return not state.share(project) and state.now - since > FAIR_SECONDS
