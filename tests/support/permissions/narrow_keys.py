"""Keys that have one permission each: by their scopes, and by a role of the tenant's own."""

from typing import Any

import httpx
from tests.support.factories.tenants import Caller

from windlass.policy import (
    ORGANIZATION_OWNER,
    ORGANIZATION_READER,
    ORGANIZATION_ROLES,
    ROLES,
    grantable,
)


def scoped_key(by: Caller, permission: str) -> Caller:
    """A key of an organization with one scope."""
    return _key(by, by.role, permission)


def custom_key(owner: Caller, permission: str) -> Caller:
    """The key of a member whom a role of the organization's own gives the permission.

    No other role of theirs does, but for what every predefined one grants.
    """
    person = f"holder-of-{permission}"
    given = ORGANIZATION_ROLES & grantable(owner.role)
    lacking = (one for one in ROLES if one in given and permission not in ROLES[one])
    member = {"user_id": person, "role": next(lacking, ORGANIZATION_READER)}
    with owner.http() as http:
        _json(http.put("/v1/members", json=member))
        role = _json(try_role(http, permission))["id"]
        _json(http.post(f"/v1/organization/users/{person}/roles", json={"role_id": role}))
    # A key has what its own role grants at most.
    return _key(owner, ORGANIZATION_OWNER, permission, user_id=person)


def try_role(http: httpx.Client, permission: str) -> httpx.Response:
    """Asks for a role of the organization that grants one permission."""
    body = {"role_name": f"only {permission}", "permissions": [permission]}
    return http.post("/v1/organization/roles", json=body)


def _key(by: Caller, role: str, scope: str, **owner: str) -> Caller:
    with by.http() as http:
        body = {"name": scope, "role": role, "scopes": [scope], **owner}
        made = _json(http.post("/v1/api_keys", json=body))
    return Caller(by.windlass, by.organization_id, "", role, made["value"], made["id"])


def _json(answer: httpx.Response) -> Any:
    assert answer.status_code == 200, answer.text
    return answer.json()
