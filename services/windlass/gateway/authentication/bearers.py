"""Workloads' own tokens in the place of keys.

Nearly all that is none is refused by its form and by the rule that it names, without a call.
Users judges what is left, once for each token and for each quarter of an hour.
"""

import asyncio
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

import grpc

from windlass.api.users.v1 import workload_identity_pb2 as pb
from windlass.api.users.v1 import workload_identity_pb2_grpc as rpc
from windlass.bearer_tokens import FINGERPRINT_BYTES, fingerprint, named_rule
from windlass.core import clock
from windlass.core.addresses import ClientAddresses
from windlass.core.errors import Unavailable, from_rpc
from windlass.core.oidc.tokens import TokenRefused, UnverifiedToken, read
from windlass.core.rpc import auth
from windlass.gateway.authentication.credentials import MadeUpKey

# Whoever asks is unknown, so that nothing else is said, whatever is there.
REFUSED = (
    "This token is not taken in the place of an API key: its issuer, its audience, its time or the "
    "rule for it does not fit. An owner of the organization finds the reason in its audit log."
)
AWAY = "Tokens of workloads cannot be checked now; try again."
# Between two questions for the rules that there are.
REFRESH_SECONDS = 0.7
# Longer than a look-up and the check of a signature take.
REFUSAL_SECONDS = 0.3
# Of one rule at once, and in line for it; and of all rules.
JUDGED_AT_ONCE, IN_LINE, MOST_IN_LINES = 8, 128, 2048
# An issuer may be asked twice for two documents.
JUDGING_SECONDS, LISTING_SECONDS = 25.0, 5.0
_FORM = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")


@dataclass(slots=True, eq=False, weakref_slot=True)
class _Line:
    """Tokens of one rule that are judged now, by their digests.

    Each rule has its own: an issuer that is slow to give its keys holds up nobody else's.
    """

    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(JUDGED_AT_ONCE))
    tasks: dict[bytes, asyncio.Task[None]] = field(default_factory=dict)


class BearerAdmission:
    """Admits tokens that some rule accepts as they are, and has users make credentials of them."""

    def __init__(self, exchange: rpc.TokenExchangeServiceAsyncStub, addresses: ClientAddresses):
        self._exchange = exchange
        self._addresses = addresses
        # Fingerprints of rules; None: there are too many to know them.
        self._rules: frozenset[bytes] | None = frozenset()
        self._asked_at = -math.inf
        self._asking = asyncio.Lock()
        # A line goes with the last task that knows it.
        self._lines: WeakValueDictionary[str, _Line] = WeakValueDictionary()
        self._in_lines = 0

    def require_form(self, credential: str) -> UnverifiedToken:
        """The token that a credential is, as it says; raises MadeUpKey for what is none now."""
        try:
            token = read(credential) if _FORM.fullmatch(credential) else None
        except TokenRefused:
            token = None
        if token is None or not named_rule(token) or not _holds(token):
            raise MadeUpKey(REFUSED)
        return token

    async def admit(self, credential: str) -> str:
        """The id of the rule that accepts what the issuer of a token signs.

        Raises MadeUpKey, and Unavailable where the rules cannot be asked for.
        """
        token = self.require_form(credential)
        rule = named_rule(token)
        prints = {fingerprint(rule, token.issuer), fingerprint(rule, "")}
        if self._rules is not None and self._rules.isdisjoint(prints):
            await self._refresh()
        if self._rules is not None and self._rules.isdisjoint(prints):
            raise MadeUpKey(REFUSED)
        return rule

    async def _refresh(self) -> None:
        async with self._asking:
            asked_at = time.monotonic()
            if asked_at - self._asked_at < REFRESH_SECONDS:
                return
            try:
                answer = await self._exchange.FingerprintRules(
                    pb.FingerprintRulesRequest(), timeout=LISTING_SECONDS
                )
            except grpc.aio.AioRpcError as error:
                raise Unavailable(AWAY) from error
            said, size = answer.fingerprints, FINGERPRINT_BYTES
            known = frozenset(said[at : at + size] for at in range(0, len(said), size))
            self._rules, self._asked_at = None if answer.has_more else known, asked_at

    async def judge(
        self, rule_id: str, credential: str, peer: str, headers: Mapping[bytes, bytes]
    ) -> None:
        """Has a token of a rule judged, so that it has a row; raises MadeUpKey, Unavailable.

        Requests that come together with the same token share one judgement.
        """
        line = self._lines.setdefault(rule_id, _Line())
        digest = auth.digest(credential)
        task = line.tasks.get(digest)
        if task is None:
            if len(line.tasks) >= IN_LINE or self._in_lines >= MOST_IN_LINES:
                raise Unavailable(AWAY)
            client = str(self._addresses.client(peer, headers) or peer)
            asked = pb.AcceptBearerRequest(subject_token=credential, client_address=client)
            self._in_lines += 1
            task = line.tasks[digest] = asyncio.create_task(self._judge(line, asked))
            task.add_done_callback(lambda done: self._end(line, digest, done))
        await asyncio.shield(task)

    async def _judge(self, line: _Line, asked: pb.AcceptBearerRequest) -> None:
        started = time.monotonic()
        try:
            async with line.turns:
                await self._exchange.AcceptBearer(asked, timeout=JUDGING_SECONDS)
        except grpc.aio.AioRpcError as error:
            if from_rpc(error).reason == "token_not_exchanged":
                await asyncio.sleep(max(0.0, started + REFUSAL_SECONDS - time.monotonic()))
                raise MadeUpKey(REFUSED) from error
            if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                raise Unavailable(AWAY) from error
            raise

    def _end(self, line: _Line, digest: bytes, done: asyncio.Task[None]) -> None:
        del line.tasks[digest]
        self._in_lines -= 1
        # Its callers may all have left.
        if not done.cancelled():
            done.exception()


def _holds(token: UnverifiedToken) -> bool:
    """Returns True unless a token says that it is over."""
    end = token.claims.get("exp")
    return isinstance(end, int | float) and end > clock.now()
