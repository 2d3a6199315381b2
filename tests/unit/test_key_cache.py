"""Cached keys count only while their changes are being watched."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from tests.support.waiting import until

from windlass import key_cache
from windlass.api.users.v1 import users_pb2
from windlass.core import clock
from windlass.core.errors import Unauthenticated, Unavailable
from windlass.core.rpc.auth import Principal
from windlass.core.rpc.following import STALE_SECONDS
from windlass.key_cache import JUDGED_SECONDS, TRUST_SECONDS, Changed, KeyCache, KnownKey

Shown = tuple[str, str]
ANN, ANNS_OTHER, BOB = ("ann", "one"), ("ann", "two"), ("bob", "one")


class Stream:
    """The call of a watch."""

    def __init__(self, beats: asyncio.Queue[users_pb2.KeyBeat]):
        self._beats = beats

    async def __aiter__(self) -> AsyncIterator[users_pb2.KeyBeat]:
        while True:
            yield await self._beats.get()

    def cancel(self) -> None:
        """Nothing is left to do: the queue has no other end."""


class Keys:
    """users and whoever is asked, as a test says."""

    def __init__(self) -> None:
        self.beats: asyncio.Queue[users_pb2.KeyBeat] = asyncio.Queue()
        self.asked: list[Shown] = []
        self.changes: list[Changed] = []
        self.expires_at = 0.0
        self.organizations: dict[str, str] = {}
        self.refused = False
        # Whether each stream was asked for rare beats.
        self.rested: list[bool] = []
        # Runs while a look-up is on its way; `meanwhile` during the next one alone.
        self.during: Callable[[], Awaitable[None]] | None = None
        self.meanwhile: Callable[[], Awaitable[None]] | None = None
        users: Any = self
        self.cache: KeyCache[Shown] = KeyCache(users, self._look_up, size=3, lookups=2)

    async def _look_up(self, shown: Shown) -> KnownKey:
        self.asked.append(shown)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        if self.during is not None:
            await self.during()
        if self.refused:
            raise Unauthenticated("No such key.")
        organization = self.organizations.get(shown[0], "org")
        return KnownKey(shown[0], Principal(organization, key_id=shown[0]), self.expires_at)

    def WatchKeys(self, request: Any) -> Stream:
        self.rested.append(request.resting)
        return Stream(self.beats)

    async def beat(self, *changed: str, reset: bool = False, of: tuple[str, ...] = ()) -> None:
        """Returns once the cache has heard it; `of` names organizations."""
        beat = users_pb2.KeyBeat(changed_key_ids=changed, reset=reset, changed_organization_ids=of)
        self.beats.put_nowait(beat)
        for _ in range(5):
            await asyncio.sleep(0)


@pytest.fixture
async def keys() -> AsyncIterator[Keys]:
    keys = Keys()
    watching = asyncio.create_task(keys.cache.watch(keys.changes.append))
    await keys.beat(reset=True)
    yield keys
    watching.cancel()


async def test_nothing_is_trusted_before_the_first_beat() -> None:
    keys = Keys()
    await keys.cache.ask(ANN)
    assert not keys.cache.trusted
    assert keys.cache.kept(ANN) is None
    with pytest.raises(Unavailable):
        await keys.cache.check()


async def test_a_key_is_kept_until_it_changes(keys: Keys) -> None:
    for shown in (ANN, ANNS_OTHER, BOB):
        await keys.cache.ask(shown)
    await keys.beat()
    await keys.beat("bob")
    assert keys.cache.kept(BOB) is None
    assert keys.cache.kept(ANN) is not None
    await keys.beat("ann")
    assert keys.cache.kept(ANN) is keys.cache.kept(ANNS_OTHER) is None
    assert keys.changes == [None, frozenset({"bob"}), frozenset({"ann"})]


async def test_a_change_of_an_organization_is_one_of_each_of_its_keys(keys: Keys) -> None:
    keys.organizations["bob"] = "other"
    for shown in (ANN, ANNS_OTHER, BOB):
        await keys.cache.ask(shown)
    await keys.beat(of=("org",))
    assert keys.cache.kept(ANN) is keys.cache.kept(ANNS_OTHER) is None
    assert keys.cache.kept(BOB) is not None
    assert keys.changes == [None, frozenset({"ann"})]
    # Nobody holds to a key of this one.
    await keys.beat(of=("nobody's",))
    assert keys.changes == [None, frozenset({"ann"})]


async def test_what_its_organization_overtakes_is_asked_for_again(keys: Keys) -> None:
    await keys.beat()

    async def change() -> None:
        await keys.beat(of=("org",))

    keys.meanwhile = change
    await keys.cache.ask(ANN)
    assert keys.asked == [ANN, ANN]
    assert keys.cache.kept(ANN) is not None


async def test_beats_are_rare_while_nobody_asks(
    keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    await keys.cache.ask(ANN)
    await keys.beat()
    assert keys.rested == [False]
    monkeypatch.setattr(key_cache, "REST_SECONDS", 0)
    await keys.beat()
    await until(lambda: keys.rested == [False, True])
    await keys.beat(reset=True)
    await keys.cache.check()
    monkeypatch.undo()
    assert keys.cache.kept(ANN) is None
    await until(lambda: keys.rested == [False, True, False])
    await keys.beat(reset=True)
    await keys.cache.ask(ANN)
    assert keys.cache.kept(ANN) is not None


async def test_who_asks_after_the_watch_has_ended_is_looked_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = Keys()
    monkeypatch.setattr(key_cache, "REST_SECONDS", -1)
    watching = asyncio.create_task(keys.cache.watch(keys.changes.append))
    await keys.beat(reset=True)
    assert keys.rested == [True]
    watching.cancel()
    await asyncio.wait({watching})
    await keys.cache.ask(ANN)
    assert keys.asked == [ANN]


async def test_a_reset_forgets_all(keys: Keys) -> None:
    await keys.cache.ask(ANN)
    await keys.beat("bob", reset=True)
    assert keys.cache.kept(ANN) is None
    assert keys.changes == [None, None]


async def test_silence_ends_trust_and_then_readiness(
    keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    await keys.cache.ask(ANN)
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + TRUST_SECONDS + 0.01)
    assert keys.cache.kept(ANN) is None
    await keys.cache.check()
    monkeypatch.setattr(time, "monotonic", lambda: now + TRUST_SECONDS + STALE_SECONDS + 0.01)
    with pytest.raises(Unavailable):
        await keys.cache.check()


@pytest.mark.parametrize(
    ("changed", "reset", "asked"),
    [(("ann",), False, 2), ((), True, 2), (("bob",), False, 1), ((), False, 1)],
)
async def test_what_a_change_overtook_is_no_answer(
    keys: Keys, changed: tuple[str, ...], reset: bool, asked: int
) -> None:
    keys.meanwhile = lambda: keys.beat(*changed, reset=reset)
    await keys.cache.ask(ANN)
    assert keys.asked == [ANN] * asked
    assert keys.cache.kept(ANN) is not None


async def test_what_a_change_revoked_meanwhile_is_refused(keys: Keys) -> None:
    async def revoke() -> None:
        await keys.beat("ann")
        keys.during = refuse

    async def refuse() -> None:
        keys.refused = True

    keys.meanwhile = revoke
    with pytest.raises(Unauthenticated):
        await keys.cache.ask(ANN)
    assert keys.cache.kept(ANN) is None


async def test_who_comes_together_asks_once(keys: Keys) -> None:
    gate = asyncio.Event()

    async def wait() -> None:
        await gate.wait()

    keys.during = wait
    asking = [asyncio.create_task(keys.cache.ask(ANN)) for _ in range(5)]
    await until(lambda: keys.asked == [ANN])
    # The one that began it leaves, and the others have its answer.
    asking[0].cancel()
    gate.set()
    assert [(await one).key_id for one in asking[1:]] == ["ann"] * 4
    assert keys.asked == [ANN]
    with pytest.raises(asyncio.CancelledError):
        await asking[0]


async def test_a_look_up_that_takes_long_is_not_shared(
    keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_cache, "SHARE_SECONDS", -1)
    gate = asyncio.Event()

    async def wait() -> None:
        await gate.wait()

    keys.meanwhile = wait
    first = asyncio.create_task(keys.cache.ask(ANN))
    await until(lambda: keys.asked == [ANN])
    assert (await keys.cache.ask(ANN)).key_id == "ann"
    gate.set()
    await first
    assert keys.asked == [ANN, ANN]


async def test_a_change_that_is_no_longer_noted_is_not_missed(keys: Keys) -> None:
    """Of more changes than the cache is large, the first are dropped."""

    async def many() -> None:
        await keys.beat("ann")
        await keys.beat("b", "c", "d", "e")

    keys.meanwhile = many
    await keys.cache.ask(ANN)
    assert keys.asked == [ANN, ANN]


async def test_what_is_refused_is_forgotten(keys: Keys) -> None:
    await keys.cache.ask(ANN)
    keys.refused = True
    with pytest.raises(Unauthenticated):
        await keys.cache.ask(ANN)
    assert keys.cache.kept(ANN) is None
    assert keys.cache.may_key_be_over("ann")


async def test_what_was_used_last_is_kept_longest(keys: Keys) -> None:
    for shown in (ANN, ANNS_OTHER, BOB):
        await keys.cache.ask(shown)
    assert keys.cache.kept(ANN) is not None
    await keys.cache.ask(("cleo", "one"))
    assert keys.cache.kept(ANNS_OTHER) is None
    assert all(keys.cache.kept(shown) for shown in (ANN, BOB, ("cleo", "one")))


async def test_a_date_passes_without_a_beat(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    await keys.cache.ask(ANN)
    keys.expires_at = clock.now() + 60
    await keys.cache.ask(ANNS_OTHER)
    assert not keys.cache.may_be_over(ANN)
    assert not keys.cache.may_key_be_over("ann")
    monkeypatch.setattr(clock, "now", lambda: keys.expires_at)
    assert keys.cache.may_be_over(ANNS_OTHER)
    assert not keys.cache.may_be_over(ANN)
    assert keys.cache.may_key_be_over("ann")
    assert keys.cache.may_be_over(BOB)
    assert keys.cache.may_key_be_over("bob")


async def test_the_end_of_one_secret_is_not_that_of_the_key(
    keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The secret of before a rotation ends: its requests are judged, and then it is no more."""
    now = clock.now()
    await keys.cache.ask(ANN)
    keys.expires_at = now + 60
    await keys.cache.ask(ANNS_OTHER)
    monkeypatch.setattr(clock, "now", lambda: now + 61)
    assert keys.cache.may_key_be_over("ann")
    monkeypatch.setattr(clock, "now", lambda: now + 61 + JUDGED_SECONDS)
    assert not keys.cache.may_key_be_over("ann")
    assert keys.cache.kept(ANN) is not None
    assert keys.cache.last_known(ANNS_OTHER) is None


async def test_only_so_many_are_asked_about_at_once(keys: Keys) -> None:
    gate = asyncio.Event()

    async def wait() -> None:
        await gate.wait()

    keys.during = wait
    async with asyncio.TaskGroup() as group:
        for name in "abcd":
            group.create_task(keys.cache.ask((name, "one")))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(keys.asked) == 2
        gate.set()
    assert len(keys.asked) == 4
