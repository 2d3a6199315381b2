"""OpenAI's types of audit events: each that the table has follows from something that is done."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pytest
from openai.resources.admin.organization import AsyncOrganization
from tests.support.clients.audit_entries import Entry, Steps
from tests.support.environments.client_certificates import made
from tests.support.services.front import Front, running_front
from tests.support.services.member_keys import Key

from windlass.gateway.openai_admin.audit.event_types import NAMES, TENANT, TYPES

PROJECTS = {
    "project.created", "project.updated", "project.archived", "project.deleted", "user.added",
    "user.updated", "user.deleted", "service_account.created", "service_account.updated",
    "service_account.deleted", "api_key.created", "api_key.updated", "api_key.deleted",
}  # fmt: skip
ROLES = {
    "role.created", "role.updated", "role.deleted", "group.created", "group.updated",
    "group.deleted", "role.assignment.created", "role.assignment.deleted",
}  # fmt: skip
POLICIES = {
    "organization.updated",
    "scim.enabled",
    "scim.disabled",
    "invite.sent",
    "invite.deleted",
}
WORKLOADS = {
    f"workload_identity_provider{of}.{done}"
    for of in ("", "_mapping")
    for done in ("created", "updated", "deleted")
}
CERTIFICATES = {
    "certificate.created", "certificate.updated", "certificate.deleted", "certificates.activated",
    "certificates.deactivated",
}  # fmt: skip
NETWORKS = {"ip_allowlist.created", "ip_allowlist.updated", "ip_allowlist.deleted"}
# Those that need more than a front, by where a test has them.
ELSEWHERE = {
    "sign_in/test_audited_sign_ins.py": {
        "login.succeeded", "login.failed", "logout.succeeded", "invite.accepted",
    },
    "external_keys/test_external_keys.py": {"external_key.registered", "external_key.removed"},
    "test_checkpoint_permissions.py": {
        "checkpoint.permission.created", "checkpoint.permission.deleted",
    },
}  # fmt: skip


@pytest.fixture
async def front(database_url: str, tmp_path: Path) -> AsyncIterator[Front]:
    # For certificates of clients, and for a policy of how long events are kept.
    sections: dict[str, Any] = {
        "http": {"trusted_proxies": ["127.0.0.1/32"]},
        "audit": {"retention_days": 30},
    }
    async with running_front(database_url, tmp_path / "data", **sections) as front:
        yield front


@pytest.fixture
def owner(front: Front) -> Key:
    return Key(front, "", front.owner_key, {})


@pytest.fixture
def step(admin: AsyncOrganization) -> Steps:
    return Steps(admin)


def test_the_table_has_openais_types_and_no_others() -> None:
    known = set(get_args(Entry.model_fields["type"].annotation))
    assert {one for one in known if not one.startswith(TENANT)} == NAMES
    assert len(NAMES) == 61
    assert {one.name for one in TYPES} <= NAMES


def test_each_type_has_a_step() -> None:
    here = PROJECTS | ROLES | POLICIES | WORKLOADS | CERTIFICATES | NETWORKS
    assert here.union(*ELSEWHERE.values()) == {one.name for one in TYPES}
    for file, types in ELSEWHERE.items():
        text = (Path(__file__).parent.parent / file).read_text()
        assert {one for one in types if f'"{one}"' not in text} == set(), file


async def test_projects_and_who_is_in_them(step: Steps, owner: Key) -> None:
    projects = step.admin.projects
    red, told = await step("project.created", lambda: projects.create(name="Red"))
    assert told == {"id": red.id, "data": {"name": "Red", "title": "Red"}}
    _, told = await step("project.updated", lambda: projects.update(red.id, name="Blue"))
    assert told == {"id": red.id, "changes_requested": {"title": "Blue"}}
    ann, bot = "ann@example.com", "bot"
    _, told = await step("user.added", lambda: owner.put(ann, "project_member", project_id=red.id))
    assert told == {"id": ann, "data": {"role": "member"}}
    _, told = await step(
        "user.updated", lambda: projects.users.update(ann, project_id=red.id, role="owner")
    )
    assert told == {"id": ann, "changes_requested": {"role": "owner"}}
    _, told = await step(
        "service_account.created",
        lambda: owner.put(bot, "project_viewer", project_id=red.id, kind="service_account"),
    )
    assert told == {"id": bot, "data": {"role": "member"}}
    accounts = projects.service_accounts
    _, told = await step(
        "service_account.updated", lambda: accounts.update(bot, project_id=red.id, role="owner")
    )
    assert told == {"id": bot, "changes_requested": {"role": "owner"}}
    _, told = await step("service_account.deleted", lambda: accounts.delete(bot, project_id=red.id))
    assert told == {"id": bot}
    await _keys(step, owner, red.id)
    await step("user.deleted", lambda: owner.remove(ann, project_id=red.id))
    _, told = await step("project.archived", lambda: projects.archive(red.id))
    assert told == {"id": red.id}
    green, _ = await step("project.created", lambda: projects.create(name="Green"))
    _, told = await step(
        "project.deleted",
        lambda: owner.ask("DELETE", f"/v1/projects/{green.id}", params={"title": "Green"}),
    )
    assert told == {"id": green.id}
    assert step.seen == PROJECTS


async def _keys(step: Steps, owner: Key, room: str) -> None:
    keys = step.admin.projects.api_keys
    key, told = await step(
        "api_key.created",
        lambda: owner.make("project_member", project_id=room, scopes=["files.read"]),
    )
    assert told == {"id": key.id, "data": {"scopes": ["files.read"]}}
    _, told = await step(
        "api_key.updated", lambda: keys.update(key.id, project_id=room, expires_in_seconds=600)
    )
    assert told["changes_requested"]["expires_in_seconds"] in range(598, 601)
    _, told = await step("api_key.deleted", lambda: keys.delete(key.id, project_id=room))
    assert told == {"id": key.id}


async def test_roles_and_groups(step: Steps) -> None:
    roles, groups = step.admin.roles, step.admin.groups
    role, told = await step(
        "role.created", lambda: roles.create(role_name="r", permissions=["jobs.read", "files.read"])
    )
    assert (told["role_name"], told["resource_type"]) == ("r", "api.organization")
    _, told = await step(
        "role.updated", lambda: roles.update(role.id, permissions=["jobs.read", "models.read"])
    )
    assert told["changes_requested"]["permissions_added"] == ["models.read"]
    assert told["changes_requested"]["permissions_removed"] == ["files.read"]
    group, told = await step("group.created", lambda: groups.create(name="g"))
    assert told == {"id": group.id, "data": {"group_name": "g"}}
    _, told = await step("group.updated", lambda: groups.update(group.id, name="h"))
    assert told == {"id": group.id, "changes_requested": {"group_name": "h"}}
    _, told = await step(
        "role.assignment.created", lambda: groups.roles.create(group.id, role_id=role.id)
    )
    given = (told["id"], told["principal_id"], told["principal_type"])
    assert given == (role.id, group.id, "group")
    _, told = await step(
        "role.assignment.deleted", lambda: groups.roles.delete(role.id, group_id=group.id)
    )
    assert told["principal_id"] == group.id
    _, told = await step("group.deleted", lambda: groups.delete(group.id))
    assert told == {"id": group.id}
    _, told = await step("role.deleted", lambda: roles.delete(role.id))
    assert told == {"id": role.id}
    assert step.seen == ROLES


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/organization/key_policy", {"unused_days": 90}),
        ("/v1/organization/sign_in_policy", {}),
        ("/v1/audit_retention", {"days": 400}),
    ],
)
async def test_policies_of_the_organization(
    step: Steps, owner: Key, path: str, body: dict[str, Any]
) -> None:
    me = (await owner.ask("GET", "/v1/me")).json()["principal"]
    _, told = await step("organization.updated", lambda: owner.ask("PUT", path, json=body))
    assert told == {"id": me["organization_id"]}


async def test_networks(step: Steps, owner: Key) -> None:
    there = (await owner.ask("GET", "/v1/me")).json()["principal"]["organization_id"]
    url, local, six = f"/v1/organizations/{there}/networks", "127.0.0.0/8", "2001:db8::/32"
    for name, some, told in (
        ("created", [local], [local]),
        ("updated", [local, six], [local, six]),
        ("deleted", [], [local, six]),
    ):
        body = {"networks": some}
        done = partial(owner.ask, "PUT", url, json=body)
        _, details = await step(f"ip_allowlist.{name}", done)
        assert details == {"id": there, "allowed_ips": told}
    assert step.seen == NETWORKS


async def test_directories_and_invites(step: Steps, owner: Key) -> None:
    directory, invites = "/v1/organization/directory", "/v1/organization/invites"
    await step("scim.enabled", lambda: owner.ask("PUT", directory, json={"role": None}))
    await step("scim.disabled", lambda: owner.ask("DELETE", directory))
    body = {"email": "ann@example.com", "role": "reader"}
    sent, told = await step("invite.sent", lambda: owner.ask("POST", invites, json=body))
    assert told == {"id": sent.json()["id"], "data": {"role": "reader"}}
    _, told = await step(
        "invite.deleted", lambda: owner.ask("DELETE", f"{invites}/{sent.json()['id']}")
    )
    assert told == {"id": sent.json()["id"]}
    assert step.seen | {"organization.updated"} == POLICIES


async def test_identities_of_workloads(step: Steps) -> None:
    providers = step.admin.workload_identity_providers
    rules = providers.federation_rules
    room = (await step.admin.projects.create(name="Red")).id
    account = (await step.admin.projects.service_accounts.create(room, name="ci")).id
    kind = "workload_identity_provider"
    new: Any = {"name": "CI", "issuer": "https://ci.example", "audience": "a", "type": "oidc"}
    ci, told = await step(f"{kind}.created", lambda: providers.create(**new))
    assert told["data"]["issuer"] == "https://ci.example"
    await step(f"{kind}.updated", lambda: providers.update(ci.id, name="Builds"))
    ours: Any = {"project_id": room, "service_account_id": account}
    rule, told = await step(
        f"{kind}_mapping.created",
        lambda: rules.create(ci.id, name="r", attribute_matchers={"repository": "a/b"}, **ours),
    )
    assert (told["id"], told["identity_provider_id"]) == (rule.id, ci.id)
    assert told["data"]["service_account_id"] == account
    of: Any = {"workload_identity_provider_id": ci.id}
    _, told = await step(
        f"{kind}_mapping.updated", lambda: rules.update(rule.id, enabled=False, **of)
    )
    assert (told["id"], told["identity_provider_id"]) == (rule.id, ci.id)
    assert told["changes_requested"]["enabled"] is False
    _, told = await step(f"{kind}_mapping.deleted", lambda: rules.delete(rule.id, **of))
    assert told == {"id": rule.id, "identity_provider_id": ci.id, **ours}
    _, told = await step(f"{kind}.deleted", lambda: providers.delete(ci.id))
    assert told == {"id": ci.id}
    assert step.seen == WORKLOADS


async def test_certificates(step: Steps) -> None:
    certificates, authority = step.admin.certificates, made("authority", ca=True)
    one, told = await step(
        "certificate.created", lambda: certificates.create(certificate=authority.pem, name="Acme")
    )
    assert told == {"id": one.id, "name": "Acme"}
    await step("certificate.updated", lambda: certificates.update(one.id, name="B"))
    # Of a project: of all, these tests would be asked for one as well.
    room, there = (
        (await step.admin.projects.create(name="Red")).id,
        step.admin.projects.certificates,
    )
    asked: Any = {
        "certificate_ids": [one.id], "extra_headers": made("client", authority).headers(),
    }  # fmt: skip
    _, told = await step("certificates.activated", lambda: there.activate(room, **asked))
    assert told == {"certificates": [{"id": one.id}]}
    await step("certificates.deactivated", lambda: there.deactivate(room, **asked))
    await step("certificate.deleted", lambda: certificates.delete(one.id))
    assert step.seen == CERTIFICATES
