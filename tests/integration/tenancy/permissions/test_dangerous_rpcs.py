"""Every tenant RPC, called in an old session and in a fresh one: dangerous ones ask again."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from tests.support.clients.wire import Metadata, Wire, methods_for
from tests.support.factories.tenants import Tenants

from windlass.api.auth.v1 import auth_pb2

TENANT = methods_for(auth_pb2.AUDIENCE_TENANT)
DANGEROUS = {method for method, rule in TENANT.items() if rule.fresh_sign_in}
REASON = "fresh_sign_in_required"
# Calls at a time: a refused change is on disk before its caller hears of it, and they share that.
AT_ONCE = 8


def session(wire: Wire, tenants: Tenants, until: int | None) -> Metadata:
    """An administrator of the platform, whose session takes dangerous steps until then."""
    principal = replace(wire.principal(tenants.admin), fresh_until=until)
    return (("windlass-principal", wire.gateway.sign_principal(principal)),)


def asking(wire: Wire, methods: set[str], credentials: Metadata) -> dict[str, str]:
    """The RPCs that ask for a fresh sign-in, with what they say."""

    def said(method: str) -> str:
        # An empty request: the rule is judged before it.
        answer = wire.refusal(method, None, credentials)
        return answer[2] if answer is not None and answer[1] == REASON else ""

    names = sorted(methods)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = zip(names, pool.map(said, names), strict=True)
        return {name: words for name, words in found if words}


def test_a_session_of_long_ago_takes_no_dangerous_step(wire: Wire, tenants: Tenants) -> None:
    assert len(DANGEROUS) > 30
    told = asking(wire, set(TENANT), session(wire, tenants, int(time.time()) - 1))
    assert set(told) == DANGEROUS
    assert all("windlass auth login --web --fresh" in words for words in told.values())


def test_a_session_of_which_nobody_knows_the_time_takes_none(wire: Wire, tenants: Tenants) -> None:
    told = asking(wire, DANGEROUS, session(wire, tenants, 0))
    assert set(told) == DANGEROUS
    assert all("auth_time" in words for words in told.values())


@pytest.mark.parametrize("seconds", [None, 600], ids=["a key", "a fresh session"])
def test_nobody_else_is_asked(wire: Wire, tenants: Tenants, seconds: int | None) -> None:
    until = None if seconds is None else int(time.time()) + seconds
    assert asking(wire, DANGEROUS, session(wire, tenants, until)) == {}
