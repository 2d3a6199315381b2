"""A person leaves an organization: ownership passes, keys do not, and no name is left."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from tests.support.services.front import running_front
from tests.support.services.member_keys import Key, join, project

from windlass.users.identity.tables import invites
from windlass.users.session_strength.tables import sessions
from windlass.users.tables import people


@pytest.fixture
async def owner(database_url: str, tmp_path: Path) -> AsyncIterator[Key]:
    async with running_front(database_url, tmp_path / "data") as front:
        yield Key(front, "", front.owner_key, {})


async def leave(owner: Key, user: str, **params: str) -> tuple[int, str]:
    answer = await owner.ask("DELETE", f"/v1/members/{user}", params=params)
    return answer.status_code, answer.json().get("error", {}).get("param", "")


async def test_ownership_passes_to_a_successor_and_keys_to_nobody(owner: Key) -> None:
    room, shared = await project(owner), await project(owner)
    ann = await join(owner, "ann", "project_owner", room)
    for user in ("ann", "bob"):
        assert (await owner.put(user, "organization_reader")).status_code == 200
    assert (await owner.put("ann", "project_owner", project_id=shared)).status_code == 200
    assert (await owner.remove("owner", project_id=room)).status_code == 200
    assert await leave(owner, "ann", successor="nobody") == (404, "successor")
    assert await leave(owner, "ann", successor="ann") == (404, "successor")
    assert await ann.status() == 200
    assert (await leave(owner, "ann", successor="bob"))[0] == 200
    await ann.ends_within_a_second()

    async def owners(scope: str) -> list[str]:
        listed = (await owner.ask("GET", "/v1/members", params={"project_id": scope})).json()
        return sorted(one["user_id"] for one in listed["data"] if one["role"] == "project_owner")

    assert await owners(room) == ["bob"]
    # It had another owner.
    assert await owners(shared) == ["owner"]


async def test_the_last_owner_of_a_project_leaves_it_to_a_successor(owner: Key) -> None:
    room = await project(owner)
    assert (await owner.put("bob", "project_member", project_id=room)).status_code == 200
    assert (await leave(owner, "owner", project_id=room))[0] == 409
    assert (await leave(owner, "owner", project_id=room, successor="bob"))[0] == 200


async def test_no_name_of_who_left_stays(owner: Key) -> None:
    organization = (await owner.ask("GET", "/v1/me")).json()["organization"]["id"]
    database = owner.front.app.database
    assert (await owner.put("ann", "organization_reader")).status_code == 200
    named = {"organization_id": organization, "user_id": "ann"}
    asked = {"email": "ann@zyx.example", "role": "reader", "projects": {}, "invited_by": "owner"}
    times = {"created_at": 1, "expires_at": 2**40}
    async with database.begin() as connection:
        await connection.execute(
            people.insert().values(
                **named, email="ann@zyx.example", name="Ann", created_at=1, updated_at=1
            )
        )
        for number, accepted in enumerate(("", "ann")):
            await connection.execute(
                invites.insert().values(
                    id=f"invite_{number}",
                    digest=bytes([number]),
                    accepted_by=accepted,
                    accepted_at=1 if accepted else 0,
                    **(named | asked | times),
                )
            )
        await connection.execute(
            sessions.insert().values(
                id="key_s",
                provider_id="p",
                subject="s",
                issuer_session="",
                auth_at=1,
                acr="",
                amr=[],
                turn=1,
                idle_until=2**40,
                ends_at=2**40,
                **named,
            )
        )
    assert (await leave(owner, "ann"))[0] == 200
    async with database.autocommit() as connection:
        kept = (await connection.execute(sa.select(invites.c.id, invites.c.email))).all()
        assert not (await connection.execute(sa.select(people))).all()
        assert not (await connection.execute(sa.select(sessions))).all()
    assert [tuple(row) for row in kept] == [("invite_1", "")]
