"""Explanations of another person's access, for who sees all of the organization."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
from tests.support.environments.oidc_provider import Issuer
from tests.support.processes.command import windlass
from tests.support.services.member_keys import Key, join, organization, project
from tests.support.services.signed_in import signed_in, trust


async def explained(by: Key, user: str, **options: Any) -> httpx.Response:
    return await by.ask("GET", f"/v1/members/{user}/explanation", **options)


async def group_that_reads(owner: Key) -> str:
    """The id of a group whose people have a role of the organization's own."""
    group = (await owner.ask("POST", "/v1/organization/groups", json={"name": "ML"})).json()["id"]
    role = {"role_name": "reader of files", "permissions": ["files.read"]}
    made = (await owner.ask("POST", "/v1/organization/roles", json=role)).json()["id"]
    path = f"/v1/organization/groups/{group}/roles"
    assert (await owner.ask("POST", path, json={"role_id": made})).status_code == 200
    return str(group)


async def test_an_owner_asks_what_the_roles_of_another_come_from(
    owner: Key, issuer: Issuer, tmp_path: Path
) -> None:
    group = await group_that_reads(owner)
    mine = (await owner.principal())["organization_id"]
    settings: dict[str, Any] = {"groups_claim": "groups", "groups": {"ml": group}}
    settings |= {"default_role": "organization_reader", "of_installation": False}
    await trust(owner, issuer, **settings)
    ann = await signed_in(owner, "ann", organization=mine)
    user = (await ann.principal())["user_id"]
    place = await project(owner)
    await owner.put(user, "project_member", project_id=place)

    said = (await explained(owner, user)).json()
    assert (said["provider_name"], said["subject"], said["amr"]) == (
        "issuer",
        "ann",
        ["pwd", "otp"],
    )
    assert said["groups"] == [{"group_id": group, "name": "ML", "claims": ["ml"]}]
    assert [(one["name"], one["project_id"], one["group_id"]) for one in said["roles"]] == [
        ("organization_reader", None, None),
        ("project_member", place, None),
        ("reader of files", None, group),
    ]
    # The person themselves is told the same.
    assert (await ann.ask("GET", "/v1/auth/explanation")).json() == said
    who = {"WINDLASS_BASE_URL": owner.front.url, "WINDLASS_API_KEY": owner.secret}
    arguments = ("auth", "explain", "--user", user, "-o", "json")
    done = await asyncio.to_thread(windlass, tmp_path, *arguments, **who)
    printed = json.loads(done.stdout)
    assert printed["groups"] == [f"ML ({group}), by ml"]
    assert printed["roles"][-1] == f"reader of files in the organization, by the group {group}"

    # Once the session has ended, it says as whom the issuer knows them.
    assert (await owner.ask("DELETE", f"/v1/auth/sessions/{ann.id}")).status_code == 200
    said = (await explained(owner, user)).json()
    assert (said["subject"], said["auth_at"], said["amr"]) == ("ann", None, [])
    assert said["groups"][0]["claims"] == ["ml"]


async def test_others_are_explained_to_who_sees_all_of_the_organization(owner: Key) -> None:
    place = await project(owner)
    await join(owner, "carl", "project_member", place)
    reader = await join(owner, "rita", "organization_reader")
    assert [one["name"] for one in (await explained(reader, "carl")).json()["roles"]] == [
        "project_member"
    ]
    for user, role in (("pia", "project_owner"), ("max", "project_member")):
        refused = await explained(await join(owner, user, role, place), "carl")
        assert (refused.status_code, refused.json()["error"]["type"]) == (
            403,
            "permission_error",
        )


async def test_people_of_other_organizations_are_people_who_never_were(owner: Key) -> None:
    await join(owner, "carl", "organization_reader")
    theirs = await organization(owner, "Other")
    foreign = await explained(owner, "carl", headers=theirs)
    never = await explained(owner, "nobody", headers=theirs)
    assert (foreign.status_code, never.status_code) == (404, 404)
    assert foreign.text.replace("carl", "…") == never.text.replace("nobody", "…")
    assert (await explained(owner, "carl")).status_code == 200
