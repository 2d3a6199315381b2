"""Cache of API keys, valid only while `users` reports which keys changed.

Beats come at each change and at least every 0.7 s. When they stop, nothing kept counts, and
every request asks again. While nobody asks about a key, beats are rare, and nothing kept counts.
"""

import asyncio
import math
import time
from collections import OrderedDict, defaultdict
from collections.abc import AsyncIterable, Awaitable, Callable, Collection, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from windlass.api.rbac.v1 import rbac_pb2
from windlass.api.users.v1 import users_pb2, users_pb2_grpc
from windlass.core import clock
from windlass.core.addresses import Address, NetworkRanges, ranges_of
from windlass.core.certificates import ClientTrust, PresentedCertificate, is_admitted, trust_of
from windlass.core.errors import Unavailable
from windlass.core.rpc.auth import Principal
from windlass.core.rpc.following import STALE_SECONDS, Follower

# Longer than from beat to beat; and a revocation must be effective within one second.
TRUST_SECONDS = 0.9
RECONNECT_SECONDS = 0.1
# Who asks for what another has just asked for gets the same answer.
SHARE_SECONDS = 0.3
# How long a look-up may take; and one after so long without a beat: a busy machine is late by less,
# and who says how keys stand is out of reach then rather than slow.
ANSWER_SECONDS, CUT_OFF_SECONDS = 5.0, 1.0
SILENT_SECONDS = 3.0
# So often is asked again about a key that changes meanwhile.
TRIES = 5
# Within which requests of a key that has reached its end are judged, and end.
JUDGED_SECONDS = 5.0
# Beats become rare when no key was asked about for so long: more than a pause in a conversation,
# since whoever comes after it waits for a look-up.
REST_SECONDS = 60.0

Shown = TypeVar("Shown", bound=Hashable)
# Which keys changed; None: any may have.
Changed = frozenset[str] | None


@dataclass(frozen=True, slots=True)
class KnownKey:
    """A key with its principal and expiry."""

    key_id: str
    principal: Principal
    # Unix seconds; 0 for a key without an end.
    expires_at: float
    # Those that it is taken from; None: any.
    networks: NetworkRanges | None = None
    # What its client's certificate satisfies, each of them; none: no certificate is needed.
    certificate_demands: tuple[ClientTrust, ...] = ()
    # Those that its organization's credentials are taken from, in addition; None: any.
    organization_networks: NetworkRanges | None = None

    @classmethod
    def of(cls, answer: rbac_pb2.AuthenticateResponse, *, key_id: str = "") -> "KnownKey":
        """The key of an answer about one, which was asked for by its id or by what it showed."""
        principal = Principal.from_proto(answer.principal)
        return cls(
            key_id or principal.key_id,
            principal,
            answer.expires_at,
            ranges_of(tuple(answer.networks)),
            tuple(trust_of(one.certificates) for one in answer.certificate_demands),
            ranges_of(tuple(answer.organization_networks)),
        )

    def is_over(self, ago: float = 0.0) -> bool:
        """Returns True if its own date has passed, so many seconds ago; no beat tells of it."""
        return 0 < self.expires_at <= clock.now() - ago

    def takes(self, address: Address | None) -> bool:
        """Returns True if the key is taken from a client's address, None where it has none."""
        return _lies_in(self.networks, address) and self.is_admitted_from(address)

    def is_admitted_from(self, address: Address | None) -> bool:
        """Returns True if the organization's credentials are taken from a client's address."""
        return _lies_in(self.organization_networks, address)

    def admits(self, presented: PresentedCertificate | None) -> bool:
        """Returns True if the key is taken from a client with such a certificate."""
        return is_admitted(self.certificate_demands, presented)


def _lies_in(networks: NetworkRanges | None, address: Address | None) -> bool:
    return networks is None or (address is not None and networks.contain(address))


@dataclass(frozen=True, slots=True, eq=False)
class _Asking:
    """A look-up on its way: when it began, and after how many beats."""

    at: float
    beats: int
    task: asyncio.Task[KnownKey]


class KeyCache(Generic[Shown]):
    """Known keys by what was shown for them: a digest and a project, or an id.

    `look_up` asks for one, and raises for a key that is not good; at most `lookups` run at once.
    """

    def __init__(
        self,
        users: users_pb2_grpc.UsersInternalServiceAsyncStub,
        look_up: Callable[[Shown], Awaitable[KnownKey]],
        *,
        size: int,
        lookups: int,
    ):
        self._users = users
        self._look_up = look_up
        self._size = size
        self._lookups = asyncio.Semaphore(lookups)
        # On their way, and when each began.
        self._asking: dict[Shown, _Asking] = {}
        self._entries: OrderedDict[Shown, KnownKey] = OrderedDict()
        self._by_key: defaultdict[str, set[Shown]] = defaultdict(set)
        self._heard_at = -math.inf
        self._used_at = time.monotonic()
        # Whether the beats are asked for rarely.
        self._rests = False
        self._changed: Callable[[Changed], None] = lambda _: None
        self._follower = Follower(
            "keys", self._open, self._hear, reconnect_seconds=RECONNECT_SECONDS
        )
        # Keys and organizations: what changed while a lookup was on its way must not be kept by it.
        self._beats = 0
        self._changed_at: OrderedDict[str, int] = OrderedDict()
        self._reset_at = 0

    @property
    def trusted(self) -> bool:
        """True if every change of a key is heard of; to ask keeps the beats frequent."""
        self._use()
        return self._used_at < self._heard_at + TRUST_SECONDS

    @property
    def silence(self) -> float:
        """Seconds since the last beat, when all that is kept was as it is kept."""
        return time.monotonic() - self._heard_at

    @property
    def is_cut_off(self) -> bool:
        """True if beats that were due have not come."""
        return self.silence > (STALE_SECONDS if self._rests else SILENT_SECONDS)

    @property
    def patience(self) -> float:
        """Seconds that a look-up may take now."""
        return CUT_OFF_SECONDS if self.is_cut_off else ANSWER_SECONDS

    def last_known(self, shown: Shown) -> KnownKey | None:
        """The state at the last beat, trusted or not."""
        return self._entries.get(shown)

    def kept(self, shown: Shown) -> KnownKey | None:
        """The state known without asking, whatever its date; None while nothing is trusted."""
        if not self.trusted or shown not in self._entries:
            return None
        self._entries.move_to_end(shown)
        return self._entries[shown]

    async def ask(self, shown: Shown) -> KnownKey:
        """Looks up and keeps a key; raises what `look_up` does, and forgets what is refused.

        Raises Unavailable for a key that never stops changing.

        Callers that come together share one look-up, which outlasts the one that began it. What a
        change has overtaken is no answer: nobody would hear of that change again.
        """
        self._use()
        for _ in range(TRIES):
            asking = self._asking.get(shown)
            if asking is None or time.monotonic() - asking.at > SHARE_SECONDS:
                asking = self._begin(shown)
            known = await asyncio.shield(asking.task)
            if not self._is_overtaken(known, asking.beats):
                return known
        raise Unavailable("This API key is being changed; try again.")

    def _begin(self, shown: Shown) -> "_Asking":
        task = asyncio.create_task(self._ask(shown, self._beats))
        asking = self._asking[shown] = _Asking(time.monotonic(), self._beats, task)
        task.add_done_callback(lambda _: self._end(shown, asking))
        return asking

    def _end(self, shown: Shown, asking: "_Asking") -> None:
        if self._asking.get(shown) is asking:
            del self._asking[shown]
        # Its callers may all have left.
        if not asking.task.cancelled():
            asking.task.exception()

    async def _ask(self, shown: Shown, started: int) -> KnownKey:
        async with self._lookups:
            try:
                known = await self._look_up(shown)
            except Unavailable:
                raise
            except Exception:
                self._forget(shown)
                raise
        self._keep(shown, known, started)
        return known

    def may_be_over(self, shown: Shown) -> bool:
        """Returns True if the date of what was shown may have passed."""
        known = self._entries.get(shown)
        return known is None or known.is_over()

    def may_key_be_over(self, key_id: str) -> bool:
        """Returns True if the date of a key may have passed, however it was shown."""
        for shown in tuple(self._by_key.get(key_id, ())):
            # A secret of before a rotation: whoever came with it has been judged by now.
            if self._entries[shown].is_over(JUDGED_SECONDS) and len(self._by_key[key_id]) > 1:
                self._forget(shown)
        return key_id not in self._by_key or any(
            self._entries[shown].is_over() for shown in self._by_key[key_id]
        )

    async def check(self) -> None:
        """Readiness: raises Unavailable while the beats have stopped for too long."""
        await self._follower.check()

    async def watch(self, changed: Callable[[Changed], None]) -> None:
        """Follows the beats until cancelled, and passes on which keys changed."""
        self._changed = changed
        await self._follower.run()

    def _open(self) -> AsyncIterable[users_pb2.KeyBeat]:
        self._rests = self._is_unused()
        request = users_pb2.WatchKeysRequest(resting=self._rests, hears_organizations=True)
        return self._users.WatchKeys(request)

    def _hear(self, beat: users_pb2.KeyBeat) -> None:
        changed = frozenset(beat.changed_key_ids) | self._kept_of(beat.changed_organization_ids)
        self._note(beat, changed)
        if beat.reset or changed:
            self._changed(None if beat.reset else changed)
        if not self._rests and self._is_unused():
            self._follower.reopen()

    def _use(self) -> None:
        self._used_at = time.monotonic()
        if self._rests:
            self._rests = False
            self._follower.reopen()

    def _is_unused(self) -> bool:
        return time.monotonic() - self._used_at > REST_SECONDS

    def _kept_of(self, organizations: Collection[str]) -> frozenset[str]:
        """The kept keys that act in these; whoever holds to another one asks about it anyway."""
        if not organizations:
            return frozenset()
        kept = self._entries.values()
        return frozenset(k.key_id for k in kept if k.principal.organization_id in organizations)

    def _note(self, beat: users_pb2.KeyBeat, changed: frozenset[str]) -> None:
        self._beats += 1
        if beat.reset:
            self._reset_at = self._beats
            self._entries.clear()
            self._by_key.clear()
        for key_id in changed:
            for shown in tuple(self._by_key.get(key_id, ())):
                self._forget(shown)
        for one in (*changed, *beat.changed_organization_ids):
            self._changed_at[one] = self._beats
            self._changed_at.move_to_end(one)
        while len(self._changed_at) > self._size:
            # Lookups that began before what is dropped here may not be kept.
            self._reset_at = max(self._reset_at, self._changed_at.popitem(last=False)[1])
        self._heard_at = time.monotonic()

    def _is_overtaken(self, known: KnownKey, started: int) -> bool:
        """Returns True if the key may have changed after so many beats."""
        of_key = self._changed_at.get(known.key_id, 0)
        of_all = self._changed_at.get(known.principal.organization_id, 0)
        return max(of_key, of_all, self._reset_at) > started

    def _keep(self, shown: Shown, known: KnownKey, started: int) -> None:
        if self._is_overtaken(known, started):
            return
        self._forget(shown)
        self._entries[shown] = known
        self._by_key[known.key_id].add(shown)
        if len(self._entries) > self._size:
            self._forget(next(iter(self._entries)))

    def _forget(self, shown: Shown) -> None:
        known = self._entries.pop(shown, None)
        if known is None:
            return
        others = self._by_key[known.key_id]
        others.discard(shown)
        if not others:
            del self._by_key[known.key_id]
