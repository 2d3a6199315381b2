"""Mail domains: proven by DNS, of one organization, by which its people find it and come in."""

from typing import Any

import httpx
import psycopg
import pytest
from tests.integration.tenancy.sign_in.dns_server import DnsServer
from tests.support.clients.browser import Browser
from tests.support.environments.oidc_provider import Issuer
from tests.support.services.member_keys import Key, join, organization
from tests.support.services.signed_in import login, signed_in, trust

DOMAINS = "/v1/organization/mail_domains"


async def claimed(by: Key, name: str = "a.example", **body: Any) -> dict[str, Any]:
    answer = await by.ask("POST", DOMAINS, json={"name": name, **body})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def verify(by: Key, name: str = "a.example") -> httpx.Response:
    return await by.ask("POST", f"{DOMAINS}/{name}/verify", json={})


async def proven(by: Key, dns: DnsServer, name: str = "a.example", **body: Any) -> None:
    claim = await claimed(by, name, **body)
    dns.texts.setdefault(claim["record_name"], ["unrelated"]).append(claim["record_value"])
    answer = await verify(by, name)
    assert (answer.status_code, answer.json()["verified"]) == (200, True), answer.text


async def owner_of(owner: Key, title: str) -> Key:
    """The owner of another organization."""
    body = {"name": "k", "role": "organization_owner"}
    there = await organization(owner, title)
    made = await owner.ask("POST", "/v1/api_keys", json=body, headers=there)
    return Key(owner.front, made.json()["id"], made.json()["value"], {})


async def test_a_domain_is_proven_by_a_record(owner: Key, dns: DnsServer) -> None:
    claim = await claimed(owner, "A.Example")
    assert (claim["name"], claim["verified"]) == ("a.example", False)
    assert claim["record_name"] == "_windlass.a.example"
    refused = await verify(owner)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "domain_not_proven")
    # What another name says, or what says it in part, proves nothing.
    dns.texts["a.example"] = [claim["record_value"]]
    dns.texts["_windlass.a.example"] = [claim["record_value"][:-1]]
    assert (await verify(owner)).status_code == 409
    dns.is_away = True
    assert (await verify(owner)).status_code == 503
    dns.is_away = False
    dns.texts["_windlass.a.example"].append(claim["record_value"])
    assert (await verify(owner)).json()["verified_at"] > 0
    assert [one["id"] for one in (await owner.ask("GET", DOMAINS)).json()["data"]] == ["a.example"]
    twice = await owner.ask("POST", DOMAINS, json={"name": "a.example"})
    assert twice.status_code == 409
    assert (await owner.ask("DELETE", f"{DOMAINS}/a.example")).status_code == 200
    assert (await verify(owner)).status_code == 404


@pytest.mark.parametrize("name", ["", "example", "a b.example", "a..example", "x" * 300, "a/b.ex"])
async def test_a_bad_name_is_told(owner: Key, name: str) -> None:
    answer = await owner.ask("POST", DOMAINS, json={"name": name})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] in ("name", "domains")


async def test_a_domain_is_of_one_organization(owner: Key, dns: DnsServer) -> None:
    other = await owner_of(owner, "other")
    await proven(owner, dns)
    for method, path in (("GET", "a.example"), ("DELETE", "a.example"), ("POST", "a.example")):
        body = {"default_role": ""} if method == "POST" else None
        answer = await other.ask(method, f"{DOMAINS}/{path}", json=body)
        assert answer.status_code == 404, answer.text
    # Both prove it: who came first keeps it, until its record is gone.
    claim = await claimed(other)
    dns.texts["_windlass.a.example"].append(claim["record_value"])
    taken = await verify(other)
    assert (taken.status_code, taken.json()["error"]["code"]) == (409, "domain_taken")
    dns.texts["_windlass.a.example"] = [claim["record_value"]]
    assert (await verify(other)).json()["verified"] is True
    lost = await owner.ask("GET", f"{DOMAINS}/a.example")
    assert lost.json()["verified"] is False


async def test_owners_alone_claim(owner: Key, dns: DnsServer) -> None:
    await proven(owner, dns)
    reader = await join(owner, "rae", "organization_reader")
    narrow = await owner.make("organization_owner", scopes=["projects.write", "members.read"])
    for key in (reader, narrow):
        assert (await key.ask("POST", DOMAINS, json={"name": "b.example"})).status_code == 403
        assert (await verify(key)).status_code == 403
        assert (await key.ask("DELETE", f"{DOMAINS}/a.example")).status_code == 403
    bad = await owner.ask("POST", DOMAINS, json={"name": "c.example", "default_role": "king"})
    assert (bad.status_code, bad.json()["error"]["param"]) == (400, "default_role")
    ours = {"name": "c.example", "default_role": "project_owner"}
    assert (await owner.ask("POST", DOMAINS, json=ours)).status_code == 400


async def test_people_find_their_issuer_by_their_address(
    owner: Key, issuer: Issuer, dns: DnsServer
) -> None:
    own = {"of_installation": False, "default_role": "organization_reader"}
    await trust(owner, issuer, **own)
    async with Browser("ann") as browser:
        # Nobody has proven a domain: nobody is asked for an address.
        assert (await browser.open(login(owner))).status_code == 404
        await proven(owner, dns)
        page = await browser.open(login(owner))
        assert "Your mail address" in page.text
        unknown = await browser.open(login(owner, email="ann@b.example"))
        assert unknown.status_code == 404
        page = await browser.open(login(owner, email="Ann@A.example"))
        assert "Signed in" in page.text


async def test_people_of_a_domain_come_in_by_an_issuer_of_all(
    owner: Key, issuer: Issuer, dns: DnsServer
) -> None:
    await trust(owner, issuer)
    await proven(owner, dns)
    async with Browser("ann") as browser:
        assert (await browser.open(login(owner, email="ann@a.example"))).status_code == 403
    change = {"default_role": "organization_reader"}
    assert (await owner.ask("POST", f"{DOMAINS}/a.example", json=change)).status_code == 200
    ann = await signed_in(owner, "ann", email="ann@a.example")
    assert await ann.roles() == ["organization_reader"]
    # Of another domain, or with an address that nobody has verified: none of them.
    for person in ("bob", "eve"):
        async with Browser(person) as browser:
            page = await browser.open(login(owner, email="ann@a.example"))
            assert page.status_code == 403
    # Who was removed stays out.
    user = (await ann.ask("GET", "/v1/me")).json()["principal"]["user_id"]
    assert (await owner.remove(user)).status_code == 200
    async with Browser("ann") as browser:
        assert (await browser.open(login(owner, email="ann@a.example"))).status_code == 403


async def test_a_directory_decides_alone_who_is_one_of_its_people(
    owner: Key, issuer: Issuer, dns: DnsServer
) -> None:
    await trust(owner, issuer)
    await proven(owner, dns, default_role="organization_reader")
    assert (await owner.ask("PUT", "/v1/organization/directory", json={})).status_code == 200
    async with Browser("ann") as browser:
        assert (await browser.open(login(owner, email="ann@a.example"))).status_code == 403


async def test_a_domain_whose_record_stays_away_is_lost(
    owner: Key, dns: DnsServer, database_url: str
) -> None:
    from windlass.users.sign_in.mail_domains.proof import MailDomainProof
    from windlass.users.sign_in.mail_domains.records import DnsRecords
    from windlass.users.sign_in.mail_domains.store import MailDomainStore

    await proven(owner, dns)
    records = DnsRecords([("127.0.0.1", dns.port)])
    proof = MailDomainProof(MailDomainStore(owner.front.app.database), records)
    plain = database_url.replace("+psycopg", "")

    async def after_days(days: int) -> dict[str, Any]:
        late = "UPDATE users_mail_domains SET checked_at = 0, missing_since = CASE"
        late += " WHEN missing_since > 0 THEN missing_since - 86400 * %s ELSE 0 END"
        async with await psycopg.AsyncConnection.connect(plain, autocommit=True) as connection:
            await connection.execute(late, (days,))
        await proof.sweep()
        found: dict[str, Any] = (await owner.ask("GET", f"{DOMAINS}/a.example")).json()
        return found

    dns.is_away = True
    assert (await after_days(9))["missing_since"] == 0
    dns.is_away, kept = False, dns.texts.pop("_windlass.a.example")
    assert (await after_days(1))["verified"] is True
    still = await after_days(2)
    assert still["verified"] is True
    assert still["missing_since"] > 0
    dns.texts["_windlass.a.example"] = kept
    assert (await after_days(9))["missing_since"] == 0
    del dns.texts["_windlass.a.example"]
    assert (await after_days(1))["verified"] is True
    assert (await after_days(4))["verified"] is False
