"""Every route of /openapi.json: closed to strangers, and open to a role as the policy says."""

import asyncio
from collections.abc import Sequence
from typing import Any

import httpx
import pytest
from tests.support.clients.example_requests import Operation, operations
from tests.support.clients.refusals import lacking, refusal
from tests.support.factories.tenants import Tenants
from tests.support.permissions.declared import RAW, declared, open_routes

from windlass.gateway.rest import RAW_METHODS
from windlass.policy import ROLES

# Said here once more, so that a route that is opened by a slip shows.
PUBLIC = {
    "GET /",
    "GET /healthz",
    "GET /readyz",
    "GET /login",
    "GET /login/start",
    "GET /login/callback",
    "GET /login/device",
    "GET /invites/{token}",
    "POST /login/confirm",
    "POST /login/refresh",
    "POST /login/end",
    "POST /login/token",
    "POST /login/revoke",
    "POST /login/device_authorization",
    "POST /login/backchannel/{provider_id}",
    "POST /v1/oauth/token",
}
# Bodies for what a schema does not say.
BODIES: dict[str, dict[str, Any]] = {
    "POST /v1/models/imports": {
        "id": "x",
        "files": [{"path": "config.json", "bytes": 1, "sha256": "0" * 64}],
    },
    "POST /v1/files": {"purpose": "user_data"},
    "PUT /v1/members": {"user_id": "x", "role": "organization_reader"},
    "POST /v1/organization/projects/{project_id}/users": {"user_id": "x", "role": "member"},
    "POST /v1/organization/mail_domains/{domain}": {"default_role": "organization_reader"},
}


@pytest.fixture(scope="module")
def routes(tenants: Tenants) -> list[Operation]:
    with tenants.admin.http() as http:
        found = operations(http.get("/openapi.json").json(), BODIES)
        return [one for one in found if one.name not in PUBLIC]


@pytest.fixture(scope="module")
def asked() -> dict[str, tuple[str, ...]]:
    """The permissions that each route asks for, the first one first."""
    return asyncio.run(declared(BODIES))


def test_what_is_for_everybody_is_known() -> None:
    assert open_routes() == PUBLIC


def test_every_route_is_known(routes: list[Operation], asked: dict[str, tuple[str, ...]]) -> None:
    assert {one.name for one in routes} == asked.keys() - PUBLIC
    assert {f"{method} {path}" for path, many in RAW_METHODS.items() for method in many} == set(RAW)
    assert [name for name, found in asked.items() if not found and name not in PUBLIC] == [
        # What it says is true of every organization.
        "GET /v1/organization/data_retention"
    ]


def test_nobody_is_told_anything_without_a_key(tenants: Tenants, routes: list[Operation]) -> None:
    with httpx.Client(base_url=tenants.admin.windlass.url) as http:
        said = {refusal(http.request(*one.target(), **one.options()), 401) for one in routes}
    assert [one.code for one in said] == ["invalid_api_key"]


@pytest.mark.parametrize("role", ROLES)
def test_a_role_opens_what_it_grants(
    tenants: Tenants, routes: list[Operation], asked: dict[str, tuple[str, ...]], role: str
) -> None:
    (caller,) = (one for one in tenants.roles if one.role == role)
    with caller.http() as http:
        found = {one.name: _lacking(http.request(*one.target(), **one.options())) for one in routes}
        # Nothing that it was let into has done it harm.
        me = http.get("/v1/me").json()["principal"]
    may = {name: _expected(asked[name], ROLES[role]) for name in found}
    assert {name: one for name, one in found.items() if one not in may[name]} == {}
    assert set(me["permissions"]) == ROLES[role]


def _expected(asked: Sequence[str], granted: frozenset[str]) -> set[str]:
    """The permissions that a refusal may name; "" for no refusal."""
    first = {*asked[:1]} - granted
    lacks = [one for one in asked if one not in granted]
    # Behind the first one, a route asks of things that are there.
    return first or {"", *lacks[:1]}


def _lacking(answer: httpx.Response) -> str:
    if answer.status_code != 403:
        return ""
    error = answer.json()["error"]
    return lacking(error["code"], error["message"])
