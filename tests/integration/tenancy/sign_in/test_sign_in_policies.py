"""What an organization asks of sign-ins: its own issuers, and more of its administrators."""

from typing import Any

import httpx
from tests.support.clients.browser import Browser
from tests.support.environments.oidc_provider import Issuer
from tests.support.services.member_keys import SECONDS, Key, join
from tests.support.services.signed_in import by_invite, login, signed_in, trust
from tests.support.waiting import until

POLICY, PROVIDERS = "/v1/organization/sign_in_policy", "/v1/organization/identity_providers"


async def put(by: Key, **policy: Any) -> httpx.Response:
    return await by.ask("PUT", POLICY, json=policy)


async def may(session: Key, permission: str) -> bool:
    answer = await session.ask("GET", f"/v1/permissions/{permission}")
    return answer.status_code == 200 and bool(answer.json()["allowed"])


async def test_administrators_need_a_second_factor(owner: Key, issuer: Issuer) -> None:
    await trust(owner, issuer)
    ann = await by_invite(owner, "ann", role="owner")
    bob = await by_invite(owner, "bob", role="owner")
    assert await may(bob, "members.write")
    locked = await put(owner, administrators_amr=["hwk"])
    assert (locked.status_code, locked.json()["error"]["code"]) == (409, "no_owner_signed_in")
    answer = await put(owner, administrators_amr=["otp", "hwk"])
    assert answer.status_code == 200, answer.text

    # Bob has shown a password alone: he works on, and administers nothing.
    await until(lambda: may(bob, "members.write"), SECONDS, holds=lambda allowed: not allowed)
    assert await may(bob, "jobs.write")
    refused = await bob.ask("GET", POLICY)
    assert refused.status_code == 200
    refused = await bob.ask("PUT", POLICY, json={})
    error = refused.json()["error"]
    assert (refused.status_code, error["code"]) == (403, "sign_in_too_weak")
    assert "--fresh" in error["message"]
    assert (await bob.try_make("organization_owner")).status_code == 403
    said = (await bob.ask("GET", "/v1/auth/explanation")).json()
    assert (said["weakened"], said["provider_name"], said["subject"]) == (True, "issuer", "bob")
    assert [one["name"] for one in said["roles"]] == ["organization_owner"]

    assert await may(ann, "members.write")
    assert (await put(ann)).status_code == 200
    await until(lambda: may(bob, "members.write"), SECONDS)


async def test_a_session_of_which_nothing_is_known_administers_nothing(
    owner: Key, issuer: Issuer, database_url: str
) -> None:
    """As of one that was idle for too long, whose row is swept before its secret is over."""
    import psycopg

    await trust(owner, issuer)
    ann = await by_invite(owner, "ann", role="owner")
    assert (await put(owner, administrators_amr=["otp"])).status_code == 200
    assert await may(ann, "members.write")
    async with await psycopg.AsyncConnection.connect(
        database_url.replace("+psycopg", ""), autocommit=True
    ) as connection:
        await connection.execute("DELETE FROM users_sessions WHERE id = %s", (ann.id,))
        await connection.execute("INSERT INTO users_key_changes (key_id) VALUES (%s)", (ann.id,))
    await until(lambda: may(ann, "members.write"), SECONDS, holds=lambda allowed: not allowed)
    assert await may(ann, "jobs.write")


async def test_who_showed_it_long_ago_shows_it_again(
    owner: Key, issuer: Issuer, database_url: str
) -> None:
    import psycopg

    await trust(owner, issuer)
    locked = (await put(owner, administrators_max_age=3600)).json()["error"]
    assert (locked["code"], locked["param"]) == ("no_owner_signed_in", "administrators_max_age")
    ann = await by_invite(owner, "ann", role="owner")
    async with await psycopg.AsyncConnection.connect(
        database_url.replace("+psycopg", ""), autocommit=True
    ) as connection:
        # As of an issuer that says no time.
        await connection.execute("UPDATE users_sessions SET auth_at = 0")
        assert (await put(owner, administrators_max_age=3600)).status_code == 409
        await connection.execute("UPDATE users_sessions SET auth_at = extract(epoch FROM now())")
    assert (await put(owner, administrators_max_age=3600)).status_code == 200
    assert await may(ann, "members.write")
    async with await psycopg.AsyncConnection.connect(
        database_url.replace("+psycopg", ""), autocommit=True
    ) as connection:
        await connection.execute("UPDATE users_sessions SET auth_at = auth_at - 3598")
        await connection.execute("INSERT INTO users_key_changes (key_id) VALUES (%s)", (ann.id,))
    # By itself, once the time has come.
    await until(lambda: may(ann, "members.write"), 5, holds=lambda allowed: not allowed)
    async with Browser("ann") as browser:
        assert "Signed in" in (await browser.open(login(owner))).text
        assert "Signed in" in (await browser.open(login(owner, fresh="true"))).text
        me = await browser.http.get(f"{owner.front.url}/v1/permissions/members.write")
        assert me.json()["allowed"]


async def test_an_organization_lets_people_in_by_its_own_issuer_alone(
    owner: Key, issuer: Issuer
) -> None:
    organization = (await owner.ask("GET", "/v1/me")).json()["principal"]["organization_id"]
    await trust(owner, issuer)
    bob = await by_invite(owner, "bob", role="owner")
    locked = await put(owner, required=True)
    assert (locked.status_code, locked.json()["error"]["code"]) == (409, "no_owner_signed_in")
    own = await trust(owner, issuer, of_installation=False, name="own")
    # Ann comes in by the organization's own, Bob by the installation's.
    link = (await owner.ask("POST", "/v1/organization/invites", json={"role": "owner"})).json()
    query = {"provider": own, "invite": link["link"].rpartition("/")[2]}
    async with Browser("ann") as browser:
        page = await browser.open(f"{owner.front.url}/login/start?{httpx.QueryParams(query)}")
        page = await browser.press(page, "Join")
        assert "Signed in" in page.text
        mine = {"sec-fetch-site": "same-origin"}
        url = f"{owner.front.url}{POLICY}"
        answer = await browser.http.put(url, json={"required": True}, headers=mine)
        assert answer.status_code == 200, answer.text

        await bob.ends_within_a_second()
        async with Browser("bob") as other:
            for way in ({}, {"organization": organization}):
                page = await other.open(login(owner, **way))
                assert "Signed in" not in page.text

        # People make keys while they are signed in; programs have accounts.
        await join(owner, "carl", "organization_owner")
        carl = await owner.make("organization_owner", user_id="carl")
        refused = await carl.try_make("organization_reader")
        error = refused.json()["error"]
        assert (refused.status_code, error["code"]) == (403, "sign_in_required")
        made = await browser.http.post(
            f"{owner.front.url}/v1/api_keys",
            json={"name": "mine", "role": "organization_reader"},
            headers=mine,
        )
        assert made.status_code == 200, made.text
        changes: tuple[tuple[str, Any], ...] = (("DELETE", None), ("POST", {"enabled": False}))
        for method, body in changes:
            kept = await owner.ask(method, f"{PROVIDERS}/{own}", json=body)
            assert (kept.status_code, kept.json()["error"]["code"]) == (409, "sign_in_required")


async def test_access_is_explained(owner: Key, issuer: Issuer) -> None:
    group = (await owner.ask("POST", "/v1/organization/groups", json={"name": "ML"})).json()["id"]
    role = {"role_name": "reader of files", "permissions": ["files.read"]}
    made = (await owner.ask("POST", "/v1/organization/roles", json=role)).json()["id"]
    path = f"/v1/organization/groups/{group}/roles"
    assert (await owner.ask("POST", path, json={"role_id": made})).status_code == 200
    organization = (await owner.ask("GET", "/v1/me")).json()["principal"]["organization_id"]
    settings: dict[str, Any] = {"groups_claim": "groups", "groups": {"ml": group}}
    settings |= {"default_role": "organization_reader", "of_installation": False}
    await trust(owner, issuer, **settings)
    ann = await signed_in(owner, "ann", organization=organization)
    said = (await ann.ask("GET", "/v1/auth/explanation")).json()
    assert said["groups"] == [{"group_id": group, "name": "ML", "claims": ["ml"]}]
    assert [(one["name"], one["group_id"]) for one in said["roles"]] == [
        ("organization_reader", None),
        ("reader of files", group),
    ]
    # Of a key there is no sign-in to tell.
    said = (await owner.ask("GET", "/v1/auth/explanation")).json()
    assert (said["provider_id"], said["groups"]) == (None, [])


async def test_bad_policies_name_the_field(owner: Key) -> None:
    for body, field in (
        ({"administrators_amr": ["a b"]}, "administrators_amr"),
        ({"administrators_acr": [""]}, "administrators_acr"),
        ({"administrators_max_age": 1}, "administrators_max_age"),
        ({"administrators_max_age": -1}, "administrators_max_age"),
        ({"surprise": True}, "surprise"),
    ):
        answer = await put(owner, **body)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)
