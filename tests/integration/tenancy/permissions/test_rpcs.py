"""Every tenant RPC, called by keys of one permission each: it alone decides who is refused."""

from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from tests.support.clients.refusals import lacking
from tests.support.clients.wire import Wire, methods_for
from tests.support.factories.tenants import Caller, Tenants
from tests.support.permissions.narrow_keys import custom_key, scoped_key, try_role

from windlass.api.auth.v1 import auth_pb2
from windlass.policy import ORGANIZATION_OWNER, PERMISSIONS, ROLES, SELF

TENANT = methods_for(auth_pb2.AUDIENCE_TENANT)
# What an organization can give: a role of its own, too.
GIVEN = sorted(ROLES[ORGANIZATION_OWNER])
PLATFORMS = sorted(PERMISSIONS - ROLES[ORGANIZATION_OWNER])
# Calls at a time: a refused change is on disk before its caller hears of it, and they share that.
AT_ONCE = 8


@pytest.mark.parametrize("permission", sorted(PERMISSIONS))
def test_a_scope_opens_what_asks_for_it(wire: Wire, tenants: Tenants, permission: str) -> None:
    by = tenants.owner if permission in GIVEN else tenants.admin
    opens_what_asks_for_it(wire, scoped_key(by, permission), permission)


@pytest.mark.parametrize("permission", GIVEN)
def test_a_custom_role_opens_what_asks_for_it(
    wire: Wire, tenants: Tenants, permission: str
) -> None:
    opens_what_asks_for_it(wire, custom_key(tenants.owner, permission), permission)


def opens_what_asks_for_it(wire: Wire, caller: Caller, permission: str) -> None:
    """Fails unless it refuses exactly the RPCs of other permissions, and says so."""
    held = {permission, SELF}
    assert wire.principal(caller).permissions == held
    credentials = wire.credentials(caller)

    def lacks(method: str) -> str:
        # An empty request: the rule is judged before it.
        said = wire.refusal(method, None, credentials)
        assert said is None or said[0] is not grpc.StatusCode.DEADLINE_EXCEEDED, method
        return lacking(*said[1:]) if said is not None else ""

    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = dict(zip(TENANT, pool.map(lacks, TENANT), strict=True))
    asked = {method: rule.permission for method, rule in TENANT.items()}
    assert found == {method: "" if one in held else one for method, one in asked.items()}
    # Nothing that it was let into has done it harm.
    with caller.http() as http:
        assert set(http.get("/v1/me").json()["principal"]["permissions"]) == held


@pytest.mark.parametrize("permission", PLATFORMS)
def test_no_organization_gives_what_is_the_platform_s(tenants: Tenants, permission: str) -> None:
    for by in (tenants.owner, tenants.admin):
        with by.http() as http:
            answer = try_role(http, permission)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "permissions")
