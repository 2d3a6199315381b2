"""Sign-ins that must fail: forged, replayed, for somebody else, or beyond somebody's power."""

from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest
from tests.support.clients.browser import Browser
from tests.support.environments.oidc_provider import Issuer
from tests.support.services.member_keys import Key, join, project
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

PROVIDERS, INVITES = "/v1/organization/identity_providers", "/v1/organization/invites"


async def answer_of(browser: Browser, owner: Key, **query: str) -> str:
    """The issuer's answer to a sign-in, before a browser has brought it to us."""
    callback = f"{owner.front.url}/login/callback"
    page = await browser.open(login(owner, **query), until=callback)
    return str(page.headers["location"])


def changed(url: str, **query: str) -> str:
    said = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
    return f"{url.partition('?')[0]}?{urlencode({**said, **query})}"


async def test_an_answer_belongs_to_one_browser_and_one_sign_in(owner: Key, issuer: Issuer) -> None:
    await trust(owner, issuer)
    await by_invite(owner, "ann", role="reader")
    async with Browser("ann") as ann, Browser("bob") as victim:
        answer = await answer_of(ann, owner)
        # Login CSRF: the answer to another's sign-in, in a browser that began none, or its own.
        assert (await victim.http.get(answer)).status_code == 400
        await answer_of(victim, owner)
        assert (await victim.http.get(answer)).status_code == 400
        # Mix-up: of another issuer, or of none though it names itself always.
        for iss in ("https://evil.example", ""):
            assert (await ann.http.get(changed(answer, iss=iss))).status_code == 403
        assert (await ann.http.get(changed(answer, state="x"))).status_code == 400
        assert (await ann.http.get(changed(answer, code="x"))).status_code == 403
        assert (await ann.http.get(changed(answer, code=""))).status_code == 403
        assert (await ann.http.get(answer)).status_code == 200
        # Replayed: that sign-in is over, and the issuer takes a code once.
        again = await ann.http.get(answer)
        assert again.status_code == 400
        assert "windlass_session" not in again.headers.get("set-cookie", "")


async def test_a_code_is_for_its_program_and_good_once(owner: Key, issuer: Issuer) -> None:
    await trust(owner, issuer)
    await by_invite(owner, "ann", role="reader")
    async with Browser("ann") as browser:
        for wrong in ({"code_verifier": "w" * 43}, {"redirect_uri": f"{LOOPBACK}/x"}):
            page = await browser.open(loopback(owner), until=LOOPBACK)
            assert "state=s%26t" in page.headers["location"]
            refused = await redeem(owner, page, **wrong)
            assert (refused.status_code, refused.json()["error"]) == (400, "invalid_grant")
            # Whoever guessed has used it up.
            assert (await redeem(owner, page)).json()["error"] == "invalid_grant"
        page = await browser.open(loopback(owner), until=LOOPBACK)
        assert (await redeem(owner, page)).status_code == 200
        assert (await redeem(owner, page)).status_code == 400


@pytest.mark.parametrize(
    "uri",
    [
        "https://evil.example/callback",
        "http://evil.example:80/callback",
        "http://127.0.0.1.evil.example:80/",
        "http://127.0.0.1:80@evil.example/",
        "http://127.0.0.1/callback",
        "http://localhost:80/callback",
        "http://127.0.0.1:80/#fragment",
        "http://127.0.0.1:80/\r\nset-cookie: a=b",
        "//127.0.0.1:80/",
        "javascript:alert(1)",
    ],
)
async def test_nothing_leads_to_another_machine(owner: Key, issuer: Issuer, uri: str) -> None:
    await trust(owner, issuer)
    async with Browser() as browser:
        page = await browser.open(loopback(owner, redirect_uri=uri))
        assert page.status_code == 400
        assert str(page.url).startswith(owner.front.url)


async def test_a_forged_token_is_nobody_s(owner: Key, issuer: Issuer) -> None:
    await trust(owner, issuer)
    ann = await by_invite(owner, "ann", role="reader")
    session, turn, mac = ann.body["refresh_token"].split(".")
    forged = (f"{session}.{int(turn) + 1}.{mac}", f"{session}.{turn}.", f"{session}.-1.{mac}", "x")
    for text in forged:
        answer = await token(owner, grant_type="refresh_token", refresh_token=text)
        assert answer.json()["error"] == "invalid_grant"
    # None of them was the session's, which goes on.
    assert await ann.status() == 200
    assert (await token(owner, grant_type="password")).json()["error"] == "unsupported_grant_type"


async def test_an_address_alone_is_nobody(owner: Key, issuer: Issuer) -> None:
    """Eve has Ann's address at the issuer, which has not verified it."""
    await trust(owner, issuer)
    await by_invite(owner, "ann", email="ann@a.example", role="owner")
    async with Browser("eve") as browser:
        assert (await browser.open(login(owner))).status_code == 403
        link = await invite(owner, email="ann@a.example", role="reader")
        page = await browser.open(link)
        assert (page.status_code, "another mail address" in page.text) == (403, True)
    async with Browser("bob") as browser:
        assert (await browser.open(link)).status_code == 403
        # Nobody has used it up.
        assert (await browser.open(link)).status_code == 403


async def test_nobody_invites_beyond_their_power(owner: Key, issuer: Issuer) -> None:
    await trust(owner, issuer)
    room, other = await project(owner), await project(owner)
    boss = await join(owner, "boss", "project_owner", room)
    admin = await join(owner, "second", "organization_owner")
    me = (await owner.ask("GET", "/v1/me")).json()["principal"]["user_id"]

    async def refused(by: Key, status: int = 403, **body: Any) -> None:
        answer = await by.ask("POST", INVITES, json=body)
        assert answer.status_code == status, answer.text

    await refused(boss, role="reader")
    await refused(boss, projects=[{"id": other, "role": "member"}])
    await refused(boss, user_id="boss")
    # Whoever acts as an operator of the platform would be one.
    await refused(admin, user_id=me)
    await refused(admin, 400, user_id="nobody")
    await refused(admin, 400)
    assert (await boss.ask("GET", INVITES)).status_code == 403

    # What its maker could give then and may not now, nobody gets.
    given = await boss.ask("POST", INVITES, json={"projects": [{"id": room, "role": "owner"}]})
    assert given.status_code == 200, given.text
    assert (await owner.put("boss", "project_member", project_id=room)).status_code in (200, 409)
    assert (await join(owner, "heir", "project_owner", room)).secret
    assert (await owner.put("boss", "project_member", project_id=room)).status_code == 200
    async with Browser("bob") as browser:
        page = await browser.open(given.json()["link"])
        assert (page.status_code, "may not give as much" in page.text) == (403, True)


async def test_an_issuer_of_one_organization_is_none_of_another(owner: Key, issuer: Issuer) -> None:
    own = await trust(owner, issuer, of_installation=False, default_role="organization_reader")
    answer = await owner.ask("POST", "/v1/organizations", json={"title": "other"})
    there = {"OpenAI-Organization": answer.json()["id"]}
    made = await owner.ask(
        "POST", "/v1/api_keys", json={"name": "k", "role": "organization_owner"}, headers=there
    )
    assert made.status_code == 200, made.text
    foreign = Key(owner.front, made.json()["id"], made.json()["value"], {})
    path = f"{PROVIDERS}/{own}"
    for method in ("GET", "POST", "DELETE"):
        answer = await foreign.ask(method, path, json={} if method == "POST" else None)
        unknown = await foreign.ask(
            method, f"{PROVIDERS}/idp_x", json={} if method == "POST" else None
        )
        assert (answer.status_code, unknown.status_code) == (404, 404)
        assert answer.text.replace(own, "idp_x") == unknown.text
    assert (await foreign.ask("GET", PROVIDERS)).json()["data"] == []
    for more in ({"of_installation": True}, {"default_role": "platform_admin"}):
        answer = await foreign.ask("POST", PROVIDERS, json=issuer.provider(**more))
        assert answer.status_code == 403, answer.text
    # The people of one's issuer cannot take an invite of the other.
    link = await invite(foreign, role="owner")
    async with Browser("ann") as browser:
        assert (await browser.open(link)).status_code == 404
        start = f"{owner.front.url}/login/start?"
        asked = {"provider": own, "invite": link.rpartition("/")[2]}
        page = await browser.open(start + urlencode(asked))
        assert (page.status_code, "another organization" in page.text) == (403, True)


async def test_a_name_that_an_issuer_chooses_is_nobody_s_role(owner: Key, issuer: Issuer) -> None:
    """What an issuer says of people is shown, and decides nothing else."""
    await trust(owner, issuer)
    bob = await by_invite(owner, "bob", role="reader")
    me = (await bob.ask("GET", "/v1/me")).json()["principal"]
    assert me["user_id"].startswith("user_")
    assert "platform_admin" not in me["roles"]
    organization = me["organization_id"]
    async with Browser("bob") as browser:
        page = await browser.open(login(owner, organization=organization))
        assert "<b>" not in page.text


async def test_who_is_deactivated_does_not_come_in(
    owner: Key, issuer: Issuer, database_url: str
) -> None:
    import psycopg

    await trust(owner, issuer)
    ann = await by_invite(owner, "ann", role="reader")
    async with await psycopg.AsyncConnection.connect(
        database_url.replace("+psycopg", ""), autocommit=True
    ) as connection:
        await connection.execute("UPDATE users_people SET deactivated_at = 1")
    async with Browser("ann") as browser:
        assert (await browser.open(login(owner))).status_code == 403
    assert ann.id


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"issuer": "ftp://x"}, "issuer"),
        ({"issuer": "http://10.0.0.1"}, "issuer"),
        ({"issuer": "https://x.example/?a"}, "issuer"),
        ({"name": ""}, "name"),
        ({"client_id": "a\nb"}, "client_id"),
        ({"domains": ["a b"]}, "domains"),
        ({"scopes": ["a b"]}, "scopes"),
        ({"default_role": "king"}, "default_role"),
        ({"default_role": "project_owner"}, "default_role"),
        ({"groups": {"a": "group_x"}}, "groups_claim"),
        ({"groups": {"a": "group_x"}, "groups_claim": "g"}, "groups"),
        ({"of_installation": True, "default_role": "organization_reader"}, "default_role"),
        ({"surprise": 1}, "surprise"),
    ],
)
async def test_bad_providers_name_the_field(
    owner: Key, issuer: Issuer, change: dict[str, Any], field: str
) -> None:
    answer = await owner.ask("POST", PROVIDERS, json=issuer.provider(**change))
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, field), answer.text


async def test_an_issuer_that_does_not_answer_is_not_trusted(owner: Key, issuer: Issuer) -> None:
    for url in ("http://127.0.0.1:1", f"{issuer.url}/other"):
        answer = await owner.ask("POST", PROVIDERS, json=issuer.provider(issuer=url))
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (409, "issuer_unavailable")
    assert (await owner.ask("GET", PROVIDERS)).json()["data"] == []


async def test_sessions_of_a_second_organization_are_asked_for(owner: Key, issuer: Issuer) -> None:
    """One person of two organizations says which, and only one of theirs."""
    await trust(owner, issuer)
    await by_invite(owner, "ann", role="reader")
    answer = await owner.ask("POST", "/v1/organizations", json={"title": "<i>second</i>"})
    second = answer.json()["id"]
    made = await owner.ask(
        "POST",
        "/v1/api_keys",
        json={"name": "k", "role": "organization_owner"},
        headers={"OpenAI-Organization": second},
    )
    other = Key(owner.front, made.json()["id"], made.json()["value"], {})
    first = await signed_in(owner, "ann")
    await by_invite(other, "ann", role="owner")
    async with Browser("ann") as browser:
        page = await browser.open(login(owner))
        assert "&lt;i&gt;second" in page.text
        forged = await browser.submit(page, organization_id="org_x")
        assert forged.status_code == 400
        page = await browser.open(login(owner))
        wrong = await browser.http.post(
            f"{owner.front.url}/login/confirm",
            data={"organization_id": second, "confirmation": "guessed"},
        )
        assert wrong.status_code == 400
        assert "Signed in" in (await browser.submit(page, organization_id=second)).text
        me = (await browser.http.get(f"{owner.front.url}/v1/me")).json()["principal"]
        assert (me["organization_id"], me["roles"]) == (second, ["organization_owner"])
    # The roles of one are nothing in the other.
    answer = await first.ask("GET", "/v1/me", headers={"OpenAI-Organization": second})
    assert answer.status_code == 403


async def test_many_failures_have_to_wait(owner: Key, issuer: Issuer) -> None:
    async with httpx.AsyncClient(base_url=owner.front.url) as http:
        statuses = set()
        for _ in range(60):
            form = {"grant_type": "refresh_token", "refresh_token": "x"}
            statuses.add((await http.post("/login/token", data=form)).status_code)
            if 429 in statuses:
                break
        assert statuses == {400, 429}
        big = await http.post("/login/token", data={"grant_type": "x" * 100_000})
        assert big.status_code == 413


async def test_who_people_are_is_decided_by_owners_alone(owner: Key, issuer: Issuer) -> None:
    own = await trust(owner, issuer, of_installation=False)
    narrow = await owner.make("organization_owner", scopes=["projects.write", "members.read"])
    await join(owner, "rae", "organization_reader")
    role = {"role_name": "projects", "permissions": ["projects.write"]}
    made = (await owner.ask("POST", "/v1/organization/roles", json=role)).json()["id"]
    path = "/v1/organization/users/rae/roles"
    assert (await owner.ask("POST", path, json={"role_id": made})).status_code == 200
    reader = await owner.make("organization_owner", user_id="rae", scopes=["projects.write"])
    for key in (narrow, reader):
        for method, at, body in (
            ("POST", PROVIDERS, issuer.provider(name="evil", person_claim="email")),
            ("POST", f"{PROVIDERS}/{own}", {"person_claim": "email"}),
            ("DELETE", f"{PROVIDERS}/{own}", None),
            ("PUT", "/v1/organization/sign_in_policy", {}),
        ):
            answer = await key.ask(method, at, json=body)
            assert answer.status_code == 403, (method, at, answer.text)


async def test_a_role_of_one_project_is_none_of_others(owner: Key, issuer: Issuer) -> None:
    await trust(owner, issuer)
    room, other = await project(owner), await project(owner)
    ann = await by_invite(owner, "ann", projects=[{"id": room, "role": "member"}])
    user = (await ann.ask("GET", "/v1/me")).json()["principal"]["user_id"]
    power = ["projects.write", "all_projects.read", "audit.read", "members.write", "secrets.write"]
    role = {"role_name": "much", "permissions": [one for one in power if one != "audit.read"]}
    made = await owner.ask("POST", "/v1/organization/roles", json=role)
    assert made.status_code == 200, made.text
    path = f"/v1/projects/{room}/users/{user}/roles"
    given = await owner.ask("POST", path, json={"role_id": made.json()["id"]})
    assert given.status_code == 200, given.text
    there = {"OpenAI-Project": room}
    me = (await ann.ask("GET", "/v1/me", headers=there)).json()["principal"]
    assert "secrets.write" in me["permissions"]
    assert {"projects.write", "all_projects.read"}.isdisjoint(me["permissions"])
    answer = await ann.ask("POST", f"/v1/projects/{other}/archive", headers=there)
    assert answer.status_code == 403


async def test_what_has_begun_ends_with_its_provider(owner: Key, issuer: Issuer) -> None:
    provider = await trust(owner, issuer)
    await by_invite(owner, "ann", role="reader")
    organization = (await owner.ask("GET", "/v1/me")).json()["principal"]["organization_id"]
    async with httpx.AsyncClient(base_url=owner.front.url) as http:
        begun = (await http.post("/login/device_authorization")).json()
    async with Browser("ann") as browser:
        page = await browser.open(begun["verification_uri_complete"])
        assert "let in" in (await browser.submit(page, organization_id=organization)).text
        code = await browser.open(loopback(owner), until=LOOPBACK)
        change = {"enabled": False}
        assert (await owner.ask("POST", f"{PROVIDERS}/{provider}", json=change)).status_code == 200
        grant = "urn:ietf:params:oauth:grant-type:device_code"
        polled = await token(owner, grant_type=grant, device_code=begun["device_code"])
        assert "access_token" not in polled.json()
        assert "access_token" not in (await redeem(owner, code)).json()


async def test_an_invite_is_for_a_member_who_is_one(owner: Key, issuer: Issuer) -> None:
    await trust(owner, issuer)
    await join(owner, "boss", "organization_reader")
    link = await invite(owner, user_id="boss")
    assert (await owner.remove("boss")).status_code == 200
    async with Browser("ann") as browser:
        assert (await browser.open(link)).status_code == 404
        room = await project(owner)
        made = await owner.put("robot", "project_member", project_id=room, kind="service_account")
        assert made.status_code == 200, made.text
        link = await invite(owner, user_id="robot")
        page = await browser.open(link)
        assert (page.status_code, "not a member" in page.text) == (403, True)
