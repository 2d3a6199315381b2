"""Objects that requests of OpenAI's tests presume, and values that a strict server takes.

The tests were written for a mock: `project_id` or `x` stand for anything. A resource is named here
by its collections, as `projects/users`; text in angle brackets is the id of such an object.
"""

import asyncio
import itertools
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.support.environments.client_certificates import made
from tests.support.fakes import vault

from windlass.core.oidc.issuers import METADATA_PATH

Json = Any
Ask = Callable[[str, str, Json], Awaitable[Json]]
_NUMBERS = itertools.count()
_ID = re.compile(r"<([a-z_/]+)>")
# Every certificate is of this key, so that what it signs is admitted wherever one is active.
AUTHORITY = made("suite", ca=True)


def unique() -> str:
    """A name that is given once."""
    return f"suite-{next(_NUMBERS)}"


def address() -> str:
    """A mail address that is given once."""
    return f"{unique()}@example.com"


def certificate() -> str:
    """A certificate that is uploaded once."""
    return made("suite", ca=True, secret=AUTHORITY.secret).pem


@dataclass(frozen=True)
class Thing:
    """A call that makes an object, and the place of its id in the answer."""

    path: str
    body: Mapping[str, Json] = field(default_factory=dict)
    id: tuple[str | int, ...] = ("id",)
    method: str = "POST"


_O = "/v1/organization"
_P = f"{_O}/projects/<projects>"
_R = "/v1/projects/<projects>"
_ROLE = {"role_name": unique, "permissions": ["files.read"]}
_ISSUER = "https://ci.example.com"
_ARN = "arn:aws:kms:eu-central-1:123456789012:key/0d7217fc"
_ACCOUNT = {"name": "Bot"}
_TOOLS = ("code_interpreter", "file_search", "image_generation", "mcp", "web_search")

THINGS: Mapping[str, Thing] = {
    "admin_api_keys": Thing(f"{_O}/admin_api_keys", {"name": "Ops"}),
    "audit_logs": Thing(f"{_O}/audit_logs?limit=1", id=("data", 0, "id"), method="GET"),
    "certificates": Thing(f"{_O}/certificates", {"certificate": certificate}),
    "external_keys": Thing(
        f"{_O}/external_keys",
        {
            "name": "Vault",
            "type": "vault",
            "address": "<vault>",
            "key": "windlass",
            "token": vault.TOKEN,
        },
    ),
    "groups": Thing(f"{_O}/groups", {"name": unique}),
    "groups/roles": Thing(f"{_O}/groups/<groups>/roles", {"role_id": "<roles>"}, ("role", "id")),
    "groups/users": Thing(f"{_O}/groups/<groups>/users", {"user_id": "<users>"}, ("user_id",)),
    "invites": Thing(f"{_O}/invites", {"email": address, "role": "reader"}),
    "projects": Thing(f"{_O}/projects", {"name": unique}),
    "projects/api_keys": Thing(f"{_P}/service_accounts", _ACCOUNT, ("api_key", "id")),
    "projects/certificates": Thing(f"{_O}/certificates", {"certificate": certificate}),
    "projects/groups": Thing(
        f"{_P}/groups", {"group_id": "<groups>", "role": "<projects/roles>"}, ("group_id",)
    ),
    "projects/groups/roles": Thing(
        f"{_R}/groups/<projects/groups>/roles", {"role_id": "<projects/roles>"}, ("role", "id")
    ),
    "projects/model_permissions": Thing(
        f"{_P}/model_permissions", {"mode": "deny_list", "model_ids": []}, ("mode",)
    ),
    "projects/roles": Thing(f"{_R}/roles", _ROLE),
    "projects/service_accounts": Thing(f"{_P}/service_accounts", _ACCOUNT),
    "projects/users": Thing(f"{_P}/users", {"email": address, "role": "member"}),
    "projects/users/roles": Thing(
        f"{_R}/users/<projects/users>/roles", {"role_id": "<projects/roles>"}, ("role", "id")
    ),
    "roles": Thing(f"{_O}/roles", _ROLE),
    "users": Thing(
        "/v1/members", {"user_id": address, "role": "organization_reader"}, ("user_id",), "PUT"
    ),
    "users/roles": Thing(f"{_O}/users/<users>/roles", {"role_id": "<roles>"}, ("role", "id")),
    "workload_identity_providers": Thing(
        f"{_O}/workload_identity_providers",
        {"name": "CI", "issuer": _ISSUER, "audience": "a", "type": "oidc"},
    ),
    "workload_identity_providers/federation_rules": Thing(
        f"{_O}/workload_identity_providers/<workload_identity_providers>/federation_rules",
        {
            "project_id": "<projects>",
            "service_account_id": "<projects/service_accounts>",
            "attribute_matchers": {"job": unique},
        },
    ),
}

# Of the query and the body: what is sent instead of a placeholder, where one is sent.
VALUES: Mapping[str, Mapping[str, Json]] = {
    "audit_logs": {"before": "<audit_logs>"},
    "certificates": {"certificate": certificate, "certificate_ids": ["<certificates>"]},
    "external_keys": {"kms_arn": _ARN, "external_id": "<projects>"},
    "groups": {"name": unique},
    "groups/roles": {"role_id": "<roles>"},
    "groups/users": {"user_id": "<users>"},
    "invites": {"email": address, "projects": [{"id": "<projects>", "role": "member"}]},
    "projects": {"name": unique, "external_key_id": "<external_keys>"},
    "projects/certificates": {"certificate_ids": ["<certificates>"]},
    "projects/groups": {"group_id": "<groups>", "role": "<projects/roles>"},
    "projects/groups/roles": {"role_id": "<projects/roles>"},
    "projects/hosted_tool_permissions": {name: {"enabled": False} for name in _TOOLS},
    "projects/roles": _ROLE,
    "projects/service_accounts/api_keys": {"scopes": ["api.files.read"]},
    "projects/users": {"user_id": "<users>", "role": "member"},
    "projects/users/roles": {"role_id": "<projects/roles>"},
    "roles": _ROLE,
    "users": {"role": "reader"},
    "users/roles": {"role_id": "<roles>"},
    "workload_identity_providers": {
        "attribute_transformations": [
            {"attribute": "repository", "expression": "assertion.repository"}
        ],
        "issuer": _ISSUER,
        "verification": {"type": "discovery", "discovery_url": f"{_ISSUER}{METADATA_PATH}"},
    },
    "workload_identity_providers/federation_rules": {
        "project_id": "<projects>",
        "service_account_id": "<projects/service_accounts>",
    },
}


# What Windlass refuses by its name, as OpenAI's tests send it. The proxy sends another value, if
# VALUES has one, or leaves it out.
REFUSED: Mapping[str, Mapping[str, Json]] = {
    # Two capital letters.
    "projects": {"geography": "geography"},
    # There is no member without a role.
    "projects/service_accounts": {"create_service_account_only": True},
    # What people are good at is asked nowhere.
    "users": {"developer_persona": "x", "technical_level": "x"},
    # Tools run nowhere.
    "projects/hosted_tool_permissions": {name: {"enabled": True} for name in _TOOLS},
}
# What a creation needs, though its types do not say so: one of two.
NEEDED: Mapping[str, Mapping[str, Json]] = {"projects/users": {"user_id": "<users>"}}
# What contradicts another parameter of the same request, and is left out.
CONTRADICTING: Mapping[str, tuple[str, ...]] = {
    # Beside an event type that is no tenant's.
    "audit_logs": ("tenant_only",),
    # Beside a user_id.
    "projects/users": ("email",),
    # Beside a role: two changes are no one change.
    "users": ("role_id",),
}


class Objects:
    """Objects of one tenant, each made when it is first named."""

    def __init__(self, ask: Ask, known: Mapping[str, str]):
        self._ask = ask
        self._known = known
        self._ids = dict(known)
        self._turn = asyncio.Lock()

    def fresh(self) -> "Objects":
        """Objects that no other request knows, which may be deleted."""
        return Objects(self._ask, self._known)

    async def id(self, name: str) -> str:
        """The id of an object; makes it, and what it is in."""
        async with self._turn:
            return await self._id(name)

    async def filled(self, value: Json) -> Json:
        """A value with ids in the places of names."""
        async with self._turn:
            return await self._filled(value)

    async def _id(self, name: str) -> str:
        if name not in self._ids:
            thing = THINGS[name]
            path, body = await self._filled(thing.path), await self._filled(thing.body)
            found = await self._ask(thing.method, path, body)
            for step in thing.id:
                found = found[step]
            self._ids[name] = str(found)
        return self._ids[name]

    async def _filled(self, value: Json) -> Json:
        if callable(value):
            return value()
        if isinstance(value, Mapping):
            return {name: await self._filled(one) for name, one in value.items()}
        if isinstance(value, list):
            return [await self._filled(one) for one in value]
        if isinstance(value, str):
            for name in _ID.findall(value):
                value = value.replace(f"<{name}>", await self._id(name))
        return value
