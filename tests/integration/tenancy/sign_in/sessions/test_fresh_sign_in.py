"""Dangerous steps in sessions: who showed long ago who they are is asked again, by the issuer."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from tests.support.clients.browser import Browser
from tests.support.environments.oidc_provider import Issuer
from tests.support.services.front import running_front
from tests.support.services.member_keys import SECONDS, Key
from tests.support.services.scim import OF_A_GROUP, OF_A_PATCH, OF_A_USER
from tests.support.services.signed_in import by_invite, login, signed_in, trust
from tests.support.waiting import until

POLICY, REASON = "/v1/organization/sign_in_policy", "fresh_sign_in_required"
FRESH_SECONDS = 900
# Of the installation that waits until a real sign-in is over.
SHORT_SECONDS = 15


async def age(session: Key, database_url: str, seconds: int) -> None:
    """Moves back when a session's person showed who they are; at 0 it is unknown."""
    async with await psycopg.AsyncConnection.connect(
        database_url.replace("+psycopg", ""), autocommit=True
    ) as connection:
        await connection.execute(
            "UPDATE users_sessions SET auth_at = greatest(0, auth_at - %s) WHERE id = %s",
            (seconds, session.id),
        )
        await connection.execute(
            "INSERT INTO users_key_changes (key_id) VALUES (%s)", (session.id,)
        )


async def step(session: Key) -> httpx.Response:
    """Takes a dangerous one, which has the organization ask for nothing."""
    return await session.ask("PUT", POLICY, json={})


def is_asked(answer: httpx.Response) -> bool:
    if answer.status_code == 200:
        return False
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (403, REASON), answer.text
    return True


async def is_refused_within_a_second(session: Key) -> httpx.Response:
    return await until(lambda: step(session), SECONDS, holds=is_asked)


async def refusals(owner: Key, session: Key) -> set[str]:
    """The steps that the audit log says a session was refused for this reason."""
    found = (await owner.ask("GET", "/v1/audit_events", params={"limit": 100})).json()["data"]
    mine = (one for one in found if (one["key_id"], one["reason"]) == (session.id, REASON))
    return {one["action"].rpartition("/")[2] for one in mine}


async def test_who_showed_it_long_ago_is_asked_again(
    owner: Key, issuer: Issuer, database_url: str
) -> None:
    await trust(owner, issuer)
    ann = await by_invite(owner, "ann", role="owner")
    assert (await step(ann)).status_code == 200
    key = await ann.make("organization_owner")
    await age(ann, database_url, FRESH_SECONDS)
    refused = await is_refused_within_a_second(ann)
    assert "windlass auth login --web --fresh" in refused.json()["error"]["message"]

    # What is not dangerous goes on, and a role that owns nothing is given.
    assert (await ann.ask("POST", "/v1/projects", json={"title": "p"})).status_code == 200
    assert (await ann.put("carl", "organization_reader")).status_code == 200
    assert (await ann.try_make("project_member")).status_code == 200
    assert is_asked(await ann.put("carl", "organization_owner"))
    assert is_asked(await ann.try_make("organization_owner"))
    rooms = [{"id": (await ann.principal())["project_id"], "role": "owner"}]
    assert is_asked(await ann.ask("POST", "/v1/organization/invites", json={"projects": rooms}))
    # A key has nobody who could be asked; what she made with a fresh sign-in is one.
    assert (await step(key)).status_code == 200

    # The very issuer asks again, and the session of before is as old as it was.
    again = await signed_in(owner, "ann", fresh="true")
    assert (await step(again)).status_code == 200
    assert is_asked(await step(ann))
    await until(lambda: refusals(owner, ann), holds=lambda found: "PutSignInPolicy" in found)


async def test_no_other_way_leads_around_the_question(
    owner: Key, issuer: Issuer, database_url: str
) -> None:
    """An invite that signs somebody in as an owner, a wider key, and a directory's groups."""
    await trust(owner, issuer)
    ann = await by_invite(owner, "ann", role="owner")
    narrow = await ann.make("organization_owner", scopes=["usage.read"], networks=["192.0.2.0/24"])
    assert (
        await owner.ask("PUT", "/v1/organization/directory", json={"role": None})
    ).status_code == 200
    team = {"schemas": [OF_A_GROUP], "displayName": "team"}
    made = (await owner.ask("POST", "/scim/v2/Groups", json=team)).json()
    await age(ann, database_url, FRESH_SECONDS)
    await is_refused_within_a_second(ann)

    owners_name = (await owner.principal())["user_id"]
    for name in (owners_name, (await ann.principal())["user_id"]):
        assert is_asked(await ann.ask("POST", "/v1/organization/invites", json={"user_id": name}))
    reader = {"role": "reader"}
    assert (await ann.ask("POST", "/v1/organization/invites", json=reader)).status_code == 200

    assert (await ann.put("carl", "organization_reader")).status_code == 200
    assert is_asked(await ann.remove("carl", successor=owners_name))
    assert (await ann.remove("carl")).status_code == 200

    bounds: list[dict[str, Any]] = [{"scopes": []}, {"networks": []}, {"expires_in": 0}]
    for wider in bounds:
        assert is_asked(await ann.ask("PATCH", f"/v1/api_keys/{narrow.id}", json=wider))
    named = await ann.ask("PATCH", f"/v1/api_keys/{narrow.id}", json={"name": "other"})
    assert named.status_code == 200

    joins = {"op": "add", "path": "members", "value": [{"value": owners_name}]}
    patch = {"schemas": [OF_A_PATCH], "Operations": [joins]}
    person = {"schemas": [OF_A_USER], "userName": "eve", "active": True}
    for method, path, body in (
        ("PATCH", f"/Groups/{made['id']}", patch),
        ("POST", "/Groups", {**team, "displayName": "others"}),
        ("POST", "/Users", person),
    ):
        assert (await ann.ask(method, f"/scim/v2{path}", json=body)).status_code == 403, path
        # The programs of a directory have keys, which nobody asks.
        assert (await owner.ask(method, f"/scim/v2{path}", json=body)).status_code < 300, path


async def test_an_issuer_that_says_no_time_is_told_of(
    owner: Key, issuer: Issuer, database_url: str
) -> None:
    await trust(owner, issuer)
    ann = await by_invite(owner, "ann", role="owner")
    await age(ann, database_url, 2**40)
    refused = await is_refused_within_a_second(ann)
    assert "auth_time" in refused.json()["error"]["message"]


async def test_an_organization_asks_sooner_and_never_later(
    owner: Key, issuer: Issuer, database_url: str
) -> None:
    await trust(owner, issuer)
    ann = await by_invite(owner, "ann", role="owner")
    bad = await owner.ask("PUT", POLICY, json={"fresh_max_age": 59})
    assert (bad.status_code, bad.json()["error"]["param"]) == (400, "fresh_max_age")
    assert (await owner.ask("PUT", POLICY, json={"fresh_max_age": 300})).status_code == 200
    await age(ann, database_url, 300)
    await is_refused_within_a_second(ann)
    # The step itself sets a policy that asks for nothing.
    assert (await owner.ask("PUT", POLICY, json={"fresh_max_age": 86_400})).status_code == 200
    await until(lambda: step(ann), SECONDS, holds=lambda answer: answer.status_code == 200)
    # A longer time is no longer than the installation's.
    assert (await owner.ask("PUT", POLICY, json={"fresh_max_age": 86_400})).status_code == 200
    await age(ann, database_url, FRESH_SECONDS)
    await is_refused_within_a_second(ann)


@pytest.fixture
async def hasty(database_url: str, tmp_path: Path, port: int, issuer: Issuer) -> AsyncIterator[Key]:
    sections: dict[str, Any] = {
        "http": {"port": port, "public_url": f"http://127.0.0.1:{port}"},
        "sign_in": {"fresh_seconds": SHORT_SECONDS},
        "oidc": {"allowed_networks": ["127.0.0.0/8"]},
    }
    async with running_front(database_url, tmp_path / "data", **sections) as front:
        yield Key(front, "", front.owner_key, {})


async def test_an_issuer_that_knows_a_browser_still_is_not_enough(
    hasty: Key, issuer: Issuer
) -> None:
    """Real time goes by: the issuer says itself when it has asked."""
    await trust(hasty, issuer)
    link = (await hasty.ask("POST", "/v1/organization/invites", json={"role": "owner"})).json()
    async with Browser("ann") as browser:
        page = await browser.press(await browser.open(link["link"]), "Join")
        assert "Signed in" in page.text

        async def own_step() -> httpx.Response:
            url, mine = f"{hasty.front.url}{POLICY}", {"sec-fetch-site": "same-origin"}
            return await browser.http.put(url, json={}, headers=mine)

        await until(own_step, 2 * SHORT_SECONDS, holds=is_asked)
        # It lets her in again without a question, and says so.
        assert "Signed in" in (await browser.open(login(hasty))).text
        assert is_asked(await own_step())
        assert "Signed in" in (await browser.open(login(hasty, fresh="true"))).text
        assert (await own_step()).status_code == 200
