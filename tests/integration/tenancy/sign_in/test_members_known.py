"""People who signed in, or whom a directory provisions, have names and addresses as members."""

from typing import Any

import openai
import pytest
from openai.resources.admin.organization import AsyncOrganization
from tests.support.clients.openai_admin import administering, foreign_key, strict
from tests.support.environments.oidc_provider import Issuer
from tests.support.services.member_keys import Key
from tests.support.services.scim import OF_A_USER, Scim, directory_of
from tests.support.services.signed_in import by_invite, trust


async def provisioned(directory: Scim, name: str, email: str, **fields: Any) -> str:
    """The id of a person whom a directory provisions."""
    body = {
        "schemas": [OF_A_USER],
        "userName": name,
        "displayName": name.title(),
        "emails": [{"value": email, "primary": True}],
        **fields,
    }
    return str((await directory.done("POST", "/Users", body))["id"])


async def shown(admin: AsyncOrganization, **asked: Any) -> dict[str, tuple[str | None, str | None]]:
    """Names and addresses of members, by their ids."""
    return {
        one.id: (one.name, one.email)
        for one in [strict(one) async for one in admin.users.list(**asked)]
    }


async def test_a_person_who_signed_in(owner: Key, issuer: Issuer) -> None:
    await trust(owner, issuer)
    ann = (await (await by_invite(owner, "ann", role="reader")).principal())["user_id"]
    async with administering(owner.front) as admin:
        assert (await shown(admin))[ann] == ("Ann", "ann@a.example")
        assert strict(await admin.users.retrieve(ann)).email == "ann@a.example"
        for email in ("ann@a.example", "ANN@a.example"):
            assert await shown(admin, emails=[email]) == {ann: ("Ann", "ann@a.example")}
        assert await shown(admin, emails=[ann]) == {ann: ("Ann", "ann@a.example")}

        room = (await admin.projects.create(name="Red")).id
        people = admin.projects.users
        made = strict(await people.create(room, role="member", email="Ann@a.example"))
        assert (made.id, made.name, made.email) == (ann, "Ann", "ann@a.example")
        assert {one.id async for one in people.list(room)} == {ann, "owner"}
        assert strict(await people.retrieve(ann, project_id=room)) == made
        group = await admin.groups.create(name="g")
        await admin.groups.users.create(group.id, user_id=ann)
        (one,) = [one async for one in admin.groups.users.list(group.id)]
        assert (one.name, one.email) == ("Ann", "ann@a.example")
    listed = (await owner.ask("GET", "/v1/members")).json()["data"]
    assert {"name": "Ann", "email": "ann@a.example"}.items() <= listed[0].items()


async def test_an_address_is_known_in_its_organization_alone(owner: Key, issuer: Issuer) -> None:
    await trust(owner, issuer)
    ann = (await (await by_invite(owner, "ann", role="reader")).principal())["user_id"]
    async with administering(owner.front, await foreign_key(owner.front)) as stranger:
        assert await shown(stranger, emails=["ann@a.example"]) == {}
        room = (await stranger.projects.create(name="Red")).id
        made = await stranger.projects.users.create(room, role="member", email="ann@a.example")
        assert (made.id, made.name) == ("ann@a.example", "ann@a.example")
    async with administering(owner.front) as admin:
        assert await shown(admin, emails=["ann@a.example"]) == {ann: ("Ann", "ann@a.example")}
    # What is known of who leaves goes with them.
    assert (await owner.remove(ann)).status_code == 200
    async with administering(owner.front) as admin:
        room = (await admin.projects.create(name="Blue")).id
        made = await admin.projects.users.create(room, role="member", email="ann@a.example")
        assert made.id == "ann@a.example"


async def test_people_of_a_directory(owner: Key) -> None:
    directory = await directory_of(owner)
    bob = await provisioned(directory, "bob", "Bob@b.example")
    async with administering(owner.front) as admin:
        assert (await shown(admin, emails=["bob@b.example"])) == {bob: ("Bob", "Bob@b.example")}
        room, people = (await admin.projects.create(name="Red")).id, admin.projects.users
        assert (await people.create(room, role="member", email="bob@b.example")).id == bob

        await provisioned(directory, "rob", "bob@b.example")
        with pytest.raises(openai.BadRequestError) as refused:
            await people.create(room, role="owner", email="bob@b.example")
        assert refused.value.param == "email"
        gone = await provisioned(directory, "eve", "eve@b.example", active=False)
        with pytest.raises(openai.BadRequestError) as refused:
            await people.create(room, role="member", email="eve@b.example")
        assert refused.value.param == "email"
        assert gone not in {one.id async for one in people.list(room)}
