"""Users by SCIM, as Okta and Entra send them: found, taken over, changed, listed and refused."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.services.scim import OF_A_PATCH, OF_A_USER, Scim, running_directory

ENTERPRISE = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User"
# As Okta's provisioning and Entra's sent them, names aside.
OKTA_USER = {
    "schemas": [OF_A_USER],
    "userName": "ann@acme.example",
    "name": {"givenName": "Ann", "familyName": "Lee"},
    "emails": [{"primary": True, "value": "ann@acme.example", "type": "work"}],
    "displayName": "Ann Lee",
    "locale": "en-US",
    "externalId": "00ujl29u0le5T6Aj10h7",
    "groups": [],
    "password": "1mz050nq",
    "active": True,
}
ENTRA_USER = {
    "schemas": [OF_A_USER, ENTERPRISE],
    "externalId": "0a21f0f2-8d2a-4f8e-bf98-7363c4aed4ef",
    "userName": "Ben.Ode@acme.example",
    "active": True,
    "displayName": "Ben Ode",
    "emails": [{"primary": True, "type": "work", "value": "ben@acme.example"}],
    "meta": {"resourceType": "User"},
    "name": {"formatted": "Ben Ode", "familyName": "Ode", "givenName": "Ben"},
    "roles": [],
    ENTERPRISE: {"department": "Search", "manager": "1"},
}
ENTRA_VALUES = {
    "op": "Replace",
    "value": {
        'emails[type eq "work"].value': "b.ode@acme.example",
        "name.familyName": "Odeh",
        f"{ENTERPRISE}:department": "Ads",
        "displayName": "Ben Odeh",
    },
}


@pytest.fixture
async def scim(database_url: str, tmp_path: Path) -> AsyncIterator[Scim]:
    async with running_directory(database_url, tmp_path / "data") as scim:
        yield scim


async def found(scim: Scim, text: str, **query: Any) -> list[str]:
    listed = await scim.done("GET", "/Users", params={"filter": text, **query})
    return [one["userName"] for one in listed["Resources"]]


async def test_the_bodies_of_okta_and_entra(scim: Scim) -> None:
    assert await found(scim, 'userName eq "ann@acme.example"') == []
    ann = await scim.done("POST", "/Users", OKTA_USER)
    assert "password" not in ann
    assert ann["id"] == "ann@acme.example"
    assert ann["meta"]["location"] == f"{scim.front.url}/scim/v2/Users/ann@acme.example"
    assert await found(scim, 'userName eq "ANN@acme.example"') == ["ann@acme.example"]
    members = (await scim.owner.ask("GET", "/v1/members")).json()["data"]
    titles = {one["user_id"]: (one["role"], one["title"]) for one in members}
    assert titles["ann@acme.example"] == ("organization_reader", "Ann Lee")
    off = await scim.patch(f"/Users/{ann['id']}", {"op": "replace", "value": {"active": False}})
    assert off["active"] is False
    # Without a word on `active`, nobody comes back.
    put = {**OKTA_USER, "displayName": "Ann L."}
    del put["active"]
    assert (await scim.done("PUT", f"/Users/{ann['id']}", put))["active"] is False
    assert (await scim.done("PUT", f"/Users/{ann['id']}", OKTA_USER))["active"] is True

    ben = await scim.done("POST", "/Users", ENTRA_USER)
    path = f"/Users/{ben['id']}"
    assert ben["id"] == "Ben.Ode@acme.example"
    off = await scim.patch(path, {"op": "Replace", "path": "active", "value": "False"})
    assert off["active"] is False
    changed = await scim.patch(path, ENTRA_VALUES)
    assert changed["emails"] == [{"value": "b.ode@acme.example", "type": "work", "primary": True}]
    assert changed["name"]["familyName"] == "Odeh"
    more = {"op": "Add", "path": 'emails[type eq "home"].value', "value": "b@home.example"}
    dropped = {"op": "Add", "path": 'phoneNumbers[type eq "work"].value', "value": "1"}
    changed = await scim.patch(path, more, dropped)
    assert [one["value"] for one in changed["emails"]] == ["b.ode@acme.example", "b@home.example"]
    same = await scim.patch(path, more)
    assert same["meta"]["version"] == changed["meta"]["version"]
    renamed = await scim.patch(
        path, {"op": "Replace", "path": "userName", "value": "ben@x.example"}
    )
    assert (renamed["id"], renamed["userName"]) == (ben["id"], "ben@x.example")
    # Whoever gets the name that is free again is another person, with another id.
    again = await scim.done("POST", "/Users", {**ENTRA_USER, "externalId": "2"})
    assert again["id"].startswith("user_")
    assert again["userName"] == ben["id"]
    assert await scim.done("DELETE", f"/Users/{again['id']}") is None
    assert await scim.done("DELETE", path) is None
    assert (await scim.refused("GET", path))["status"] == "404"
    assert (await scim.refused("DELETE", path))["status"] == "404"
    assert (await scim.done("POST", "/Users", ENTRA_USER))["id"] == ben["id"]


async def test_people_who_were_there_keep_their_ids(scim: Scim) -> None:
    await scim.owner.put("jo", "organization_auditor", title="Jo")
    await scim.owner.put("bot", "organization_reader", kind="service_account")
    assert await found(scim, 'userName eq "jo"') == ["jo"]
    assert await found(scim, 'userName eq "bot"') == []
    taken = await scim.refused("POST", "/Users", {"schemas": [OF_A_USER], "userName": "JO"})
    assert (taken["status"], taken["scimType"]) == ("409", "uniqueness")
    taken = await scim.refused("POST", "/Users", {"schemas": [OF_A_USER], "userName": "bot"})
    assert taken["scimType"] == "uniqueness"
    # An address alone makes nobody somebody else.
    other = await scim.user("jo@x.example", emails=[{"value": "jo"}])
    assert other["id"] == "jo@x.example"
    said = {"schemas": [OF_A_USER], "userName": "jo.doe", "externalId": "7", "displayName": "Jo D"}
    assert (await scim.done("PUT", "/Users/jo", said))["id"] == "jo"
    assert await found(scim, 'externalId eq "7"') == ["jo.doe"]
    for refused in (
        await scim.owner.remove("jo"),
        await scim.owner.put("jo", "organization_auditor", title="Other"),
    ):
        assert refused.status_code == 409
        assert refused.json()["error"]["code"] == "managed_by_directory"
    # Roles are for owners to give all the same.
    assert (await scim.owner.put("jo", "organization_reader")).status_code == 200
    assert (await scim.user("no id: ü"))["id"].startswith("user_")
    assert (await scim.user("bulkId"))["id"].startswith("user_")
    off = await scim.owner.ask("DELETE", "/v1/organization/directory")
    assert off.status_code == 200
    refused = await scim.refused("GET", "/Users/jo")
    assert refused["status"] == "403"
    assert (await scim.owner.remove("jo")).status_code == 200


async def test_filters_order_pages_and_parts(scim: Scim) -> None:
    for number in range(5):
        emails: list[Any] = [{"value": f"u{number}@w.example", "type": "work"}]
        emails += [{"value": f"u{number}@h.example", "type": "home", "primary": True}]
        name = {"familyName": f"F{number}", "givenName": "x"} if number else {}
        await scim.user(f"U{number}", emails=emails, active=number != 3, name=name)
    everybody = ["U0", "U1", "U2", "U3", "U4"]
    for text, names in {
        'userName sw "u" and active eq true': ["U0", "U1", "U2", "U4"],
        'userName sw "u" and not (active eq true)': ["U3"],
        'emails[type eq "work" and value co "u2@W"]': ["U2"],
        'emails[type eq "work"].value eq "u2@w.example"': ["U2"],
        'emails[type eq "work" and value co "@h"]': [],
        'emails.value eq "u1@h.example" or externalId pr': ["U1"],
        'emails co "u4@"': ["U4"],
        'emails pr and name.familyName ge "F3"': ["U3", "U4"],
        'name pr and userName ew "1"': ["U1"],
        'userName sw "U" and name.familyName eq null': ["U0"],
        'userName sw "U" and name.familyName ne "F1"': ["U0", "U2", "U3", "U4"],
        'meta.created gt "2020-01-01T00:00:00Z" and userName sw "u"': everybody,
        'meta.lastModified lt "2020-01-01T00:00:00Z"': [],
        'id eq "u1"': [],
        'id eq "U1"': ["U1"],
        f'{OF_A_USER}:userName eq "u1"': ["U1"],
        'userName eq "x\' OR 1=1 --"': [],
        'userName co "%"': [],
        'userName eq "\\u0055\\u0031"': ["U1"],
    }.items():
        assert sorted(await found(scim, text)) == names, text
    down = {"sortBy": "userName", "sortOrder": "descending"}
    assert await found(scim, 'userName sw "u"', **down) == everybody[::-1]
    part = {"filter": 'userName sw "u"', "startIndex": 2, "count": 2, "sortBy": "userName"}
    page = await scim.done("GET", "/Users", params=part)
    assert (page["totalResults"], page["startIndex"], page["itemsPerPage"]) == (5, 2, 2)
    assert [one["userName"] for one in page["Resources"]] == ["U1", "U2"]
    schema = "urn:ietf:params:scim:api:messages:2.0:SearchRequest"
    search = {"schemas": [schema], "attributes": ["userName"], "filter": 'userName eq "u1"'}
    (one,) = (await scim.done("POST", "/Users/.search", search))["Resources"]
    assert set(one) == {"schemas", "id", "userName"}
    one = await scim.done("GET", "/Users/U1", params={"excludedAttributes": "emails,meta"})
    assert "emails" not in one
    assert "meta" not in one
    none = await scim.done("GET", "/Users", params={"count": 0})
    assert (none["totalResults"], none["Resources"]) == (6, [])
    far = await scim.done("GET", "/Users", params={"startIndex": 10**15})
    assert far["Resources"] == []


async def test_what_is_wrong_is_said_so(scim: Scim) -> None:
    deep = "not (" * 40 + "active pr" + ")" * 40
    for text in (
        "userName", 'nothing eq "x"', 'active gt true', 'userName eq "', "a" * 2001, deep,
        " or ".join(['userName eq "x"'] * 80), 'meta.location eq "x"', "(" * 1000,
        f'userName eq "{"x" * 300}"', 'userName eq "\\u0000"', 'userName eq "\\ud800"',
        'meta.created sw "2020-01-01T00:00:00Z"',
    ):  # fmt: skip
        said = await scim.refused("GET", "/Users", params={"filter": text})
        assert (said["status"], said["scimType"]) == ("400", "invalidFilter"), text
    for body in (
        {"schemas": [OF_A_USER]},
        {"schemas": [OF_A_USER], "userName": ""},
        {"schemas": [OF_A_USER], "userName": "x" * 201},
        {"schemas": [OF_A_USER], "userName": "a\nb"},
        {"schemas": [OF_A_USER], "userName": ["x"]},
        {"schemas": [OF_A_USER], "userName": "x", "active": "perhaps"},
        {"schemas": [OF_A_USER], "userName": "x", "emails": [{"value": "e@x"}] * 6},
        {"schemas": [OF_A_USER], "userName": "x", "emails": [{"value": "e" * 255}]},
    ):
        said = await scim.refused("POST", "/Users", body)
        assert (said["status"], said["scimType"]) == ("400", "invalidValue"), body
    both = {"attributes": "userName", "excludedAttributes": "emails"}
    said = await scim.refused(
        "POST", "/Users", {"schemas": [OF_A_USER], "userName": "both"}, params=both
    )
    assert said["status"] == "400"
    assert (await scim.refused("GET", "/Users/both"))["status"] == "404"
    await scim.user("ann")
    for operation, kind in {
        '{"op": "remove"}': "noTarget",
        '{"op": "remove", "path": "userName"}': "mutability",
        '{"op": "replace", "path": "id", "value": "x"}': "mutability",
        '{"op": "replace", "path": "emails[", "value": "x"}': "invalidPath",
        '{"op": "jump", "path": "userName", "value": "x"}': "invalidValue",
    }.items():
        text = f'{{"schemas": ["{OF_A_PATCH}"], "Operations": [{operation}]}}'
        said = await scim.refused("PATCH", "/Users/ann", content=text)
        assert (said["status"], said["scimType"]) == ("400", kind), operation
    nested = '{"a": ' * 500 + "1" + "}" * 500
    for content in (nested, "[", "[]", '"x"', '{"userName": "\\u0000"}', '{"userName": "\\ud800"}'):
        said = await scim.refused("POST", "/Users", content=content)
        assert (said["status"], said["scimType"]) == ("400", "invalidSyntax")
    said = await scim.refused("POST", "/Users", content=b" " * 2**20 + b"{}")
    assert said["status"] == "413"
    assert (await scim.refused("GET", "/Users/a%00"))["status"] == "400"
    assert (await scim.refused("GET", "/Users/..%2FUsers"))["status"] == "404"
    for method, path in (("DELETE", "/Users"), ("PUT", "/Schemas"), ("GET", "/Bulk")):
        assert (await scim.refused(method, path))["status"] == "405"
    for path in ("/Nothing", "/Users/ann/x", "/Users/nobody", "/Schemas/x", "/Me"):
        assert (await scim.refused("GET", path))["status"] == "404"
    async with scim.front.http("sk-wrong") as http:
        wrong = await http.get("/scim/v2/Users")
    assert wrong.status_code == 401
    assert wrong.json()["status"] == "401"
    plain = await scim.owner.make("organization_reader")
    assert (await plain.ask("GET", "/scim/v2/Users")).json()["status"] == "403"


async def test_versions(scim: Scim) -> None:
    ann = await scim.user("ann")
    tag = ann["meta"]["version"]
    assert tag.startswith('W/"')
    read = await scim.ask("GET", "/Users/ann", headers={"If-None-Match": tag})
    assert (read.status_code, read.headers["etag"], read.content) == (304, tag, b"")
    put = {"schemas": [OF_A_USER], "userName": "ann", "displayName": "Ann"}
    changed = await scim.ask("PUT", "/Users/ann", json=put, headers={"If-Match": tag})
    assert changed.status_code == 200
    assert changed.headers["etag"] == changed.json()["meta"]["version"] != tag
    for method, body in (("PUT", put), ("DELETE", None)):
        for stale in (tag, '"no version"'):
            said = await scim.refused(method, "/Users/ann", body, headers={"If-Match": stale})
            assert said["status"] == "412"
    assert (await scim.done("PUT", "/Users/ann", put, headers={"If-Match": "*"}))["id"] == "ann"
