"""People sign in by a real issuer: from a browser, a command line and a device."""

import httpx
import pytest
from tests.support.clients.browser import Browser
from tests.support.environments.oidc_provider import Issuer
from tests.support.services.member_keys import SECONDS, Key, project
from tests.support.services.signed_in import (
    LOOPBACK,
    by_invite,
    invite,
    login,
    loopback,
    redeem,
    signed_in,
    token,
    trust,
)
from tests.support.waiting import until


async def test_a_person_signs_in_by_an_invite(owner: Key, issuer: Issuer) -> None:
    await trust(owner, issuer)
    room = await project(owner)
    rooms = [{"id": room, "role": "member"}]
    link = await invite(owner, email="ann@a.example", role="reader", projects=rooms)
    async with Browser("ann") as browser:
        page = await browser.press(await browser.open(link), "Join")
        assert page.status_code == 200, page.text
        assert "Signed in" in page.text
        me = await browser.http.get(f"{owner.front.url}/v1/me")
        assert me.status_code == 200, me.text
        principal = me.json()["principal"]
        assert principal["user_id"].startswith("user_")
        assert set(principal["roles"]) == {"organization_reader", "project_member"}
        assert me.json()["project"]["id"] == room
        # What a page of another site has the browser send is nobody's.
        other = {"sec-fetch-site": "cross-site"}
        assert (
            await browser.http.get(f"{owner.front.url}/v1/me", headers=other)
        ).status_code == 401

        # Later without an invite, which is used up.
        again = await browser.open(login(owner))
        assert "Signed in" in again.text
    async with Browser("bob") as browser:
        page = await browser.open(link)
        assert page.status_code == 404
        assert "No invite that is open" in page.text
        page = await browser.open(login(owner))
        assert page.status_code == 403
        assert "No organization here knows you" in page.text


async def test_a_program_signs_in_and_renews_its_session(owner: Key, issuer: Issuer) -> None:
    await trust(owner, issuer)
    room = await project(owner)
    ann = await by_invite(owner, "ann", projects=[{"id": room, "role": "member"}])
    assert await ann.roles() == ["project_member"]
    key = await ann.make("project_member", project_id=room)

    async def renewed(of: Key) -> httpx.Response:
        refresh = of.body["refresh_token"]
        return await token(owner, grant_type="refresh_token", refresh_token=refresh)

    answer = await renewed(ann)
    assert answer.status_code == 200, answer.text
    later = Key(owner.front, ann.id, answer.json()["access_token"], answer.json())
    assert later.secret != ann.secret
    assert await later.status() == 200
    # Calls that were under way go on for a minute, and make no keys.
    assert await ann.status() == 200
    made = (await one.try_make("project_member", project_id=room) for one in (ann, later))
    assert [answer.status_code async for answer in made] == [403, 200]
    listed = (await later.ask("GET", "/v1/auth/sessions")).json()["data"]
    assert [one["id"] for one in listed] == [ann.id]

    # One who has a copy of a token gets nothing, and the session ends for both.
    stolen = await renewed(ann)
    assert (stolen.status_code, stolen.json()["error"]) == (400, "invalid_grant")
    await later.ends_within_a_second()
    assert (await renewed(later)).json()["error"] == "invalid_grant"
    # What was made while signed in stays its person's.
    assert await key.status() == 200


async def test_a_secret_is_over_with_its_session(owner: Key, issuer: Issuer) -> None:
    """An idle session ends sooner than its secret would."""
    await trust(owner, issuer)
    settings = owner.front.app.settings.sign_in
    settings.secret_seconds, settings.idle_seconds = 3600, 300
    ann = await by_invite(owner, "ann", role="reader")
    form = {"grant_type": "refresh_token", "refresh_token": ann.body["refresh_token"]}
    renewed = (await token(owner, **form)).json()
    for body in (ann.body, renewed):
        assert 0 < body["expires_in"] <= 300


async def test_a_device_is_let_in(owner: Key, issuer: Issuer) -> None:
    await trust(owner, issuer)
    await by_invite(owner, "ann", role="reader")
    async with httpx.AsyncClient(base_url=owner.front.url) as http:
        form = {"device": "<script>a server</script>"}
        begun = (await http.post("/login/device_authorization", data=form)).json()
    poll = {
        "grant_type": "urn:ietf:params:oauth:grant-type:device_code",
        "device_code": begun["device_code"],
    }
    assert (await token(owner, **poll)).json()["error"] == "authorization_pending"
    assert (await token(owner, **poll)).json()["error"] == "slow_down"
    async with Browser("ann") as browser:
        page = await browser.open(begun["verification_uri_complete"])
        assert "&lt;script&gt;a server" in page.text
        assert begun["user_code"] in page.text
        me = await owner.ask("GET", "/v1/me")
        organization = me.json()["principal"]["organization_id"]
        done = await browser.submit(page, organization_id=organization)
        assert "let in" in done.text
        # A code is good once.
        assert (await browser.open(begun["verification_uri_complete"])).status_code == 404
    answer = await token(owner, **poll)
    assert answer.status_code == 200, answer.text
    session = Key(owner.front, answer.json()["session_id"], answer.json()["access_token"], {})
    assert await session.roles() == ["organization_reader"]
    assert (await token(owner, **poll)).json()["error"] == "expired_token"


async def test_a_device_is_refused(owner: Key, issuer: Issuer) -> None:
    await trust(owner, issuer)
    await by_invite(owner, "ann", role="reader")
    async with httpx.AsyncClient(base_url=owner.front.url) as http:
        begun = (await http.post("/login/device_authorization")).json()
    async with Browser("ann") as browser:
        page = await browser.open(begun["verification_uri_complete"])
        assert "refused" in (await browser.submit(page, denied="true")).text
    grant = "urn:ietf:params:oauth:grant-type:device_code"
    answer = await token(owner, grant_type=grant, device_code=begun["device_code"])
    assert answer.json()["error"] == "access_denied"


async def test_a_device_is_let_in_by_an_organization_s_own_issuer(
    owner: Key, issuer: Issuer
) -> None:
    await trust(owner, issuer, of_installation=False, default_role="organization_reader")
    organization = (await owner.principal())["organization_id"]
    async with httpx.AsyncClient(base_url=owner.front.url) as http:
        form = {"organization": organization}
        begun = (await http.post("/login/device_authorization", data=form)).json()
        asked = await http.get(begun["verification_uri"])
        # It goes along with the code that somebody enters.
        assert f'name="organization" value="{organization}"' in asked.text
    async with Browser("ann") as browser:
        page = await browser.open(begun["verification_uri_complete"])
        assert "let in" in (await browser.submit(page, organization_id=organization)).text
    grant = "urn:ietf:params:oauth:grant-type:device_code"
    answer = await token(owner, grant_type=grant, device_code=begun["device_code"])
    assert answer.json()["organization_id"] == organization


async def test_an_issuer_ends_a_session(owner: Key, issuer: Issuer) -> None:
    provider = await trust(owner, issuer)
    issuer.start(logout_uri=f"{owner.front.url}/login/backchannel/{provider}")
    link = await invite(owner, role="reader")
    async with Browser("ann") as browser:
        page = await browser.open(loopback(owner, invite=link.rpartition("/")[2]), until=LOOPBACK)
        page = await browser.press(page, "Join", until=LOOPBACK)
        answer = (await redeem(owner, page)).json()
        ann = Key(owner.front, answer["session_id"], answer["access_token"], answer)
        assert await ann.status() == 200
        page = await browser.open(f"{issuer.url}/session/end")
        await browser.submit(page, logout="yes")
        await ann.ends_within_a_second()


async def test_one_s_own_session_and_those_of_others(owner: Key, issuer: Issuer) -> None:
    await trust(owner, issuer)
    room = await project(owner)
    rooms = [{"id": room, "role": "owner"}]
    ann = await by_invite(owner, "ann", projects=rooms)
    bob = await by_invite(owner, "bob", projects=rooms)
    path = "/v1/auth/sessions"
    assert [one["id"] for one in (await bob.ask("GET", path)).json()["data"]] == [bob.id]
    assert (await bob.ask("DELETE", f"{path}/{ann.id}")).status_code == 404
    assert (await bob.ask("POST", f"/v1/api_keys/{bob.id}/rotate", json={})).status_code == 400
    seen = {one["id"] for one in (await owner.ask("GET", path)).json()["data"]}
    assert seen == {ann.id, bob.id}
    # They are no keys, and no project's.
    assert seen.isdisjoint(await owner.sees())
    assert (await owner.ask("DELETE", f"{path}/{ann.id}")).status_code == 200
    await ann.ends_within_a_second()
    refresh = ann.body["refresh_token"]
    answer = await token(owner, grant_type="refresh_token", refresh_token=refresh)
    assert answer.json()["error"] == "invalid_grant"
    async with httpx.AsyncClient(base_url=owner.front.url) as http:
        form = {"token": bob.body["refresh_token"]}
        assert (await http.post("/login/revoke", data=form)).status_code == 200
    await bob.ends_within_a_second()


async def test_a_session_follows_its_person(owner: Key, issuer: Issuer) -> None:
    await trust(owner, issuer)
    one, other = await project(owner), await project(owner)
    ann = await by_invite(owner, "ann", projects=[{"id": one, "role": "member"}])
    user = (await ann.ask("GET", "/v1/me")).json()["principal"]["user_id"]

    async def roles(room: str) -> list[str]:
        answer = await ann.ask("GET", "/v1/me", headers={"OpenAI-Project": room})
        return list(answer.json()["principal"]["roles"]) if answer.status_code == 200 else []

    assert (await roles(one), await roles(other)) == (["project_member"], [])
    refused = await ann.ask("GET", "/v1/me", headers={"OpenAI-Project": other})
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "mismatched_project")
    assert (await owner.put(user, "project_owner", project_id=other)).status_code == 200
    await until(lambda: roles(other), SECONDS, holds=lambda found: found == ["project_owner"])
    assert (await owner.remove(user, project_id=one)).status_code == 200
    await until(lambda: roles(one), SECONDS, holds=lambda found: not found)
    assert (await ann.ask("GET", "/v1/me")).json()["project"]["id"] == other
    assert (await owner.remove(user, project_id=other)).status_code == 200
    await ann.ends_within_a_second()


@pytest.mark.parametrize("with_role", [True, False])
async def test_an_organization_s_own_people_come_by_themselves(
    owner: Key, issuer: Issuer, with_role: bool
) -> None:
    room = await project(owner)
    group = (await owner.ask("POST", "/v1/organization/groups", json={"name": "ML"})).json()["id"]
    role = {"role_name": "tuner", "permissions": ["jobs.read", "files.read"]}
    made = (await owner.ask("POST", f"/v1/projects/{room}/roles", json=role)).json()["id"]
    path = f"/v1/projects/{room}/groups/{group}/roles"
    assert (await owner.ask("POST", path, json={"role_id": made})).status_code == 200
    settings = {"of_installation": False, "groups_claim": "groups", "groups": {"ml": group}}
    if with_role:
        settings["default_role"] = "organization_reader"
    provider = await trust(owner, issuer, **settings, domains=["a.example"])
    organization = (await owner.ask("GET", "/v1/me")).json()["principal"]["organization_id"]

    async with Browser("bob") as browser:
        page = await browser.open(login(owner, organization=organization))
        assert (page.status_code, "a.example" in page.text) == (403, True)
    if not with_role:
        async with Browser("ann") as browser:
            page = await browser.open(login(owner, organization=organization))
            assert page.status_code == 403
        return
    ann = await signed_in(owner, "ann", organization=organization)
    # A group that is named like a role gives none.
    assert await ann.roles() == ["organization_reader"]
    me = await ann.ask("GET", "/v1/me", headers={"OpenAI-Project": room})
    assert "jobs.read" in me.json()["principal"]["permissions"]

    # Another claim at the next sign-in, and the group is left.
    path = f"/v1/organization/identity_providers/{provider}"
    assert (await owner.ask("POST", path, json={"groups": {"other": group}})).status_code == 200
    again = await signed_in(owner, "ann", organization=organization)
    me = await again.ask("GET", "/v1/me", headers={"OpenAI-Project": room})
    assert "jobs.read" not in me.json()["principal"]["permissions"]

    # Who was removed stays out, until they are invited.
    user = me.json()["principal"]["user_id"]
    assert (await owner.remove(user)).status_code == 200
    await again.ends_within_a_second()
    async with Browser("ann") as browser:
        page = await browser.open(login(owner, organization=organization))
        assert page.status_code == 403
    # Nor by another provider of the same issuer.
    settings["name"] = "again"
    assert (await owner.ask("DELETE", path)).status_code == 200
    provider = await trust(owner, issuer, **settings, domains=["a.example"])
    path = f"/v1/organization/identity_providers/{provider}"
    async with Browser("ann") as browser:
        page = await browser.open(login(owner, organization=organization))
        assert page.status_code == 403
    back = await by_invite(owner, "ann", role="reader")
    # As somebody new: what was noted of them went with them.
    assert (await back.ask("GET", "/v1/me")).json()["principal"]["user_id"] != user
    assert (await owner.ask("POST", path, json={"groups": {}, "enabled": False})).status_code == 200
    await back.ends_within_a_second()
