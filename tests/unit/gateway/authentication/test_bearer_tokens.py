"""What the gateway does with a token before it asks users: nearly all garbage costs no call."""

import asyncio
import time
from typing import Any

import grpc
import pytest
from tests.support.fakes.oidc_issuer import claims, signed, signing_key
from tests.support.waiting import until

from windlass.api.users.v1 import workload_identity_pb2 as pb
from windlass.bearer_tokens import fingerprint
from windlass.core.addresses import ClientAddresses
from windlass.core.errors import REASON_KEY, Unavailable
from windlass.core.oidc.tokens import TOKEN_BYTES
from windlass.gateway.authentication import bearers
from windlass.gateway.authentication.bearers import BearerAdmission
from windlass.gateway.authentication.credentials import MadeUpKey

ISSUER, RULE = "https://issuer.example", "wir_" + "r" * 24
KEY = signing_key()


def token(**changed: Any) -> str:
    return signed(claims(ISSUER, **{"aud": f"a/{RULE}", **changed}), KEY)


class Users:
    """Stands for users, whose rules a test says."""

    def __init__(self) -> None:
        self.rules = [(RULE, ISSUER)]
        self.more = self.away = self.refuses = False
        self.listed = self.judged = 0
        # While it is cleared, no token is judged.
        self.answers = asyncio.Event()
        self.answers.set()

    async def FingerprintRules(self, request: Any, timeout: float) -> pb.FingerprintRulesResponse:
        self.listed += 1
        if self.away:
            raise _error(grpc.StatusCode.UNAVAILABLE)
        found = b"".join(fingerprint(*rule) for rule in self.rules)
        return pb.FingerprintRulesResponse(fingerprints=found, has_more=self.more)

    async def AcceptBearer(self, request: Any, timeout: float) -> pb.AcceptBearerResponse:
        self.judged += 1
        await self.answers.wait()
        if self.refuses:
            raise _error(grpc.StatusCode.PERMISSION_DENIED, "token_not_exchanged")
        if self.away:
            raise _error(grpc.StatusCode.UNAVAILABLE)
        return pb.AcceptBearerResponse()


def _error(code: grpc.StatusCode, reason: str = "") -> grpc.aio.AioRpcError:
    trailing = grpc.aio.Metadata(*([(REASON_KEY, reason)] if reason else []))
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailing)


@pytest.fixture
def users() -> Users:
    return Users()


@pytest.fixture
def tokens(users: Users) -> BearerAdmission:
    stub: Any = users
    return BearerAdmission(stub, ClientAddresses())


async def test_garbage_costs_no_call(users: Users, tokens: BearerAdmission) -> None:
    head, payload, signature = token().split(".")
    garbage = [
        "a.b.c", "..", f"{head}.{payload}.", f"{head}.{payload}", f"{token()}.x", f"{token()}=",
        f"{head}.{payload}.{signature}\u00e9", f"{head}.bm9wZQ.{signature}", "x" * TOKEN_BYTES,
        token(aud=None), token(aud="a"), token(aud=[f"a/{RULE}", "b"]), token(aud=[]),
        token(aud={}), token(aud=f"a/{RULE}/"), token(aud="a/wir_'"), token(exp=1), token(exp=None),
        token(exp="never"), token(padding="x" * TOKEN_BYTES),
        token(aud=7), f"eyJhbGciOiJub25lIn0.{payload}.{signature}", "\x00",
    ]  # fmt: skip
    for text in garbage:
        with pytest.raises(MadeUpKey):
            tokens.require_form(text)
        with pytest.raises(MadeUpKey):
            await tokens.admit(text)
    assert users.listed == users.judged == 0


async def test_what_no_rule_names_costs_one_question_a_while(
    users: Users, tokens: BearerAdmission, monkeypatch: pytest.MonkeyPatch
) -> None:
    await tokens.admit(token())
    others = [token(iss="https://other.example"), token(aud="a/wir_" + "o" * 24)]
    for text in others * 5:
        with pytest.raises(MadeUpKey):
            await tokens.admit(text)
    assert users.listed == 1
    # A rule that is new is heard of, and a cluster's is one whoever its issuer is.
    users.rules.append(("wir_" + "o" * 24, ""))
    monkeypatch.setattr(bearers, "REFRESH_SECONDS", 0.0)
    await tokens.admit(others[1])
    users.more = True
    with pytest.raises(MadeUpKey):
        await tokens.admit("a.b.c")
    await tokens.admit(others[0])
    assert users.judged == 0


async def test_who_cannot_be_asked_refuses_nobody_for_good(
    users: Users, tokens: BearerAdmission
) -> None:
    users.away = True
    with pytest.raises(Unavailable):
        await tokens.admit(token())
    with pytest.raises(Unavailable):
        await tokens.judge(RULE, token(), "", {})
    users.away = False
    await tokens.admit(token())


async def test_those_who_come_together_share_a_judgement(
    users: Users, tokens: BearerAdmission
) -> None:
    text = token()
    await asyncio.gather(*(tokens.judge(RULE, text, "192.0.2.1", {}) for _ in range(50)))
    assert users.judged == 1
    users.refuses = True
    started = time.monotonic()
    found = await asyncio.gather(
        *(tokens.judge(RULE, text, "", {}) for _ in range(9)), return_exceptions=True
    )
    assert {type(one) for one in found} == {MadeUpKey}
    assert users.judged == 2
    assert time.monotonic() - started >= bearers.REFUSAL_SECONDS


async def test_lines_are_bounded_and_each_rules_own(users: Users, tokens: BearerAdmission) -> None:
    users.answers.clear()
    crowd = [token(jti=str(number)) for number in range(bearers.IN_LINE + 3)]
    waiting = [asyncio.create_task(tokens.judge(RULE, one, "", {})) for one in crowd]
    await until(lambda: sum(one.done() for one in waiting) == 3)
    assert users.judged == bearers.JUDGED_AT_ONCE
    other = asyncio.create_task(tokens.judge("wir_other", token(), "", {}))
    await until(lambda: users.judged == bearers.JUDGED_AT_ONCE + 1)
    users.answers.set()
    found = await asyncio.gather(*waiting, other, return_exceptions=True)
    assert [type(one) for one in found].count(Unavailable) == 3
    assert users.judged == bearers.IN_LINE + 1
