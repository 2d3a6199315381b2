"""Roles for a time, on request: who may ask, who decides, and attacks on both."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.clients.openai_admin import foreign_key
from tests.support.services.front import running_front
from tests.support.services.member_keys import SECONDS, Key, join, project
from tests.support.waiting import until

from windlass.core.db import Database
from windlass.users.tables import elevations

SCOPES = ["secrets.read", "secrets.write"]
NARROW = ["members.read", "members.write", "elevations.read"]


@dataclass
class Room:
    """A project with a role that its members may ask for."""

    owner: Key
    id: str
    role: str
    # A member who asks, and an owner of the project who decides.
    ann: Key
    boss: Key

    @property
    def path(self) -> str:
        return f"/v1/projects/{self.id}"

    async def rules(self, **rules: Any) -> httpx.Response:
        body = {"askers": "project", "longest_seconds": 3600, "approvals": 1} | rules
        return await self.owner.ask("PUT", f"{self.path}/roles/{self.role}/elevation", json=body)

    async def try_request(self, by: Key, **body: Any) -> httpx.Response:
        body = {"role_id": self.role, "reason": "A token leaked.", "seconds": 600} | body
        return await by.ask("POST", f"{self.path}/elevations", json=body)

    async def request(self, by: Key | None = None, **body: Any) -> str:
        answer = await self.try_request(by or self.ann, **body)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["id"])

    async def decide(self, by: Key, elevation: str, verb: str = "approve") -> httpx.Response:
        return await by.ask("POST", f"{self.path}/elevations/{elevation}/{verb}", json={})

    async def state(self, elevation: str) -> str:
        answer = await self.owner.ask("GET", f"{self.path}/elevations/{elevation}")
        return str(answer.json()["state"])

    async def held(self, user: str = "ann") -> list[str]:
        answer = await self.owner.ask("GET", f"{self.path}/users/{user}/roles")
        return [one["id"] for one in answer.json()["data"]]

    async def key(self, user: str = "ann") -> Key:
        return await self.owner.make(
            "project_owner", project_id=self.id, user_id=user, scopes=SCOPES
        )


@pytest.fixture
async def owner(database_url: str, tmp_path: Path) -> AsyncIterator[Key]:
    async with running_front(database_url, tmp_path / "data") as front:
        yield Key(front, "", front.owner_key, {})


@pytest.fixture
async def room(owner: Key) -> Room:
    where = await project(owner)
    body = {"role_name": "Secret keeper", "permissions": ["secrets.write"]}
    made = (await owner.ask("POST", f"/v1/projects/{where}/roles", json=body)).json()
    ann = await join(owner, "ann", "project_member", where)
    boss = await join(owner, "boss", "project_owner", where)
    room = Room(owner, where, made["id"], ann, boss)
    assert (await room.rules()).status_code == 200
    return room


async def may(key: Key) -> set[str]:
    return await key.permissions()


async def has(key: Key, permission: str, *, so: bool) -> None:
    await until(lambda: may(key), SECONDS, holds=lambda found: (permission in found) == so)


async def test_a_member_asks_another_approves_and_it_ends(room: Room) -> None:
    asked = (await room.try_request(room.ann)).json()
    assert (asked["state"], asked["user_id"], asked["approvals"]) == ("pending", "ann", 1)
    assert (await room.try_request(room.ann)).json() == asked
    shown = (await room.boss.ask("GET", f"{room.path}/elevations?state=pending")).json()["data"]
    assert shown == [asked]
    assert await room.held() == []
    body = {"comment": "Until it is rotated."}
    path = f"{room.path}/elevations/{asked['id']}/approve"
    approved = (await room.boss.ask("POST", path, json=body)).json()
    assert (approved["state"], approved["approved_by"]) == ("approved", ["boss"])
    assert approved["comment"] == body["comment"]
    assert abs(approved["ends_at"] - time.time() - 600) < 60
    assert (await room.decide(room.boss, asked["id"])).json() == approved
    held = (await room.owner.ask("GET", f"{room.path}/users/ann/roles/{room.role}")).json()
    assert held["metadata"] == {"ends_at": approved["ends_at"]}
    assert held["created_by"] == "boss"
    key = await room.key()
    assert "secrets.write" in await may(key)
    assert (await room.try_request(room.ann)).status_code == 409
    ended = (await room.decide(room.ann, asked["id"], "end")).json()
    assert (ended["state"], ended["reason"]) == ("ended", "A token leaked.")
    await has(key, "secrets.write", so=False)
    assert (await room.decide(room.ann, asked["id"], "end")).json()["state"] == "ended"
    for verb in ("approve", "deny"):
        refused = (await room.decide(room.boss, asked["id"], verb)).json()["error"]
        assert refused["code"] == "elevation_closed"
    # The key is of use again with the next one.
    again = await room.request(reason="Another leaked.")
    await room.decide(room.boss, again)
    await has(key, "secrets.write", so=True)
    assert (await room.decide(room.boss, again, "end")).status_code == 200
    await has(key, "secrets.write", so=False)


async def test_who_asks_and_decides_is_in_the_audit_log(room: Room) -> None:
    asked = await room.request()
    await room.decide(room.boss, asked)

    async def rows() -> set[tuple[str, str, str]]:
        answer = (await room.owner.ask("GET", "/v1/audit_events?limit=100")).json()
        return {
            (one["action"].rpartition("/")[2], one["user_id"], one["resource"])
            for one in answer["data"]
        }

    expected = {
        ("RequestElevation", "ann", asked),
        ("ApproveElevation", "boss", asked),
        ("ApproveElevation", "boss", "ann"),
    }
    await until(rows, 5, holds=lambda found: expected <= found)


async def test_it_is_over_by_the_clock(room: Room, database_url: str) -> None:
    asked = await room.request()
    await room.decide(room.boss, asked)
    lapsed = await room.request(await join(room.owner, "bob", "project_member", room.id))
    database = Database(database_url)
    async with database.begin() as connection:
        for column, state in (("ends_at", "approved"), ("expires_at", "pending")):
            await connection.execute(
                elevations.update().where(elevations.c.state == state).values({column: 1})
            )
    await database.close()
    assert (await room.state(asked), await room.state(lapsed)) == ("ended", "expired")
    refused = (await room.decide(room.boss, lapsed)).json()["error"]
    assert (refused["code"], "expired" in refused["message"]) == ("elevation_closed", True)
    for state, one in (("ended", asked), ("expired", lapsed)):
        listed = await room.boss.ask("GET", f"{room.path}/elevations", params={"state": state})
        assert [found["id"] for found in listed.json()["data"]] == [one]


async def test_denied_and_withdrawn(room: Room) -> None:
    denied = await room.request()
    assert (await room.decide(room.boss, denied, "deny")).json()["denied_by"] == "boss"
    assert (await room.decide(room.boss, denied, "deny")).json()["state"] == "denied"
    assert (await room.decide(room.boss, denied)).status_code == 409
    assert (await room.decide(room.ann, denied, "withdraw")).status_code == 409
    other = await room.request()
    assert other != denied
    assert (await room.decide(room.boss, other, "withdraw")).status_code == 404
    for _ in range(2):
        assert (await room.decide(room.ann, other, "withdraw")).json()["state"] == "withdrawn"
    assert (await room.decide(room.boss, other)).status_code == 409
    assert await room.held() == []


async def test_nobody_approves_for_themselves(room: Room) -> None:
    """Neither by a second key, nor as owner, nor by a key that they made for another."""
    asked = await room.request(room.boss)
    second = await room.owner.make("project_owner", project_id=room.id, user_id="boss")
    await room.owner.put("eve", "project_owner", project_id=room.id)
    handed = await room.boss.make("project_owner", project_id=room.id, user_id="eve")
    for key in (room.boss, second, handed):
        for verb in ("approve", "deny"):
            refused = await room.decide(key, asked, verb)
            assert refused.status_code == 403, refused.text
    assert await room.state(asked) == "pending"
    eve = await room.owner.make("project_owner", project_id=room.id, user_id="eve")
    assert (await room.decide(eve, asked)).json()["state"] == "approved"


async def test_what_a_group_gives_approves_nothing(room: Room) -> None:
    """Power by a role of the tenant's own is not handed on, neither to oneself nor to others."""
    body = {"role_name": "Power", "permissions": ["members.read", "members.write", *SCOPES]}
    power = (await room.owner.ask("POST", f"{room.path}/roles", json=body)).json()["id"]
    made = await room.owner.ask("POST", "/v1/organization/groups", json={"name": "G"})
    group = made.json()["id"]
    await room.owner.put("bob", "project_member", project_id=room.id)
    for user in ("ann", "bob"):
        path = f"/v1/organization/groups/{group}/users"
        await room.owner.ask("POST", path, json={"user_id": user})
    await room.owner.ask("POST", f"{room.path}/groups/{group}/roles", json={"role_id": power})
    scopes = ["members.read", "members.write", "elevations.read", "elevations.write", *SCOPES]
    keys = {
        user: await room.owner.make(
            "project_owner", project_id=room.id, user_id=user, scopes=scopes
        )
        for user in ("ann", "bob")
    }
    assert "members.write" in await may(keys["bob"])
    asked = await room.request(keys["ann"])
    for key in keys.values():
        assert (await room.decide(key, asked)).status_code == 403
    assert await room.state(asked) == "pending"


async def test_who_lost_power_meanwhile_approves_nothing(room: Room) -> None:
    await room.rules(approvals=2)
    asked = await room.request()
    await room.owner.put("eve", "project_owner", project_id=room.id)
    eve = await room.owner.make("project_owner", project_id=room.id, user_id="eve")
    first = (await room.decide(room.boss, asked)).json()
    assert (first["state"], first["approved_by"]) == ("pending", ["boss"])
    assert (await room.decide(room.boss, asked)).json() == first
    await room.owner.put("boss", "project_member", project_id=room.id)
    second = (await room.decide(eve, asked)).json()
    assert (second["state"], second["approved_by"]) == ("pending", ["eve"])
    # Who sees no members does not see either what others ask for.
    assert (await room.decide(room.boss, asked)).status_code == 404
    narrow = await room.owner.make(
        "project_owner", project_id=room.id, user_id="eve", scopes=NARROW
    )
    other = await room.request(await join(room.owner, "bob", "project_member", room.id))
    assert (await room.decide(narrow, other)).status_code == 403
    # Who made the key that approved could have done it: that is not a second person.
    assert (await room.decide(room.owner, asked)).status_code == 403
    await room.owner.put("boss", "project_owner", project_id=room.id)
    last = await until(
        lambda: room.decide(room.boss, asked), SECONDS, holds=lambda got: got.status_code == 200
    )
    assert last.json()["approved_by"] == ["eve", "boss"]


async def test_two_approvals_are_of_two_people(room: Room) -> None:
    await room.rules(approvals=2)
    asked = await room.request()
    await room.owner.put("eve", "project_owner", project_id=room.id)
    handed = await room.boss.make("project_owner", project_id=room.id, user_id="eve")
    assert (await room.decide(room.boss, asked)).status_code == 200
    assert (await room.decide(handed, asked)).status_code == 403
    other = await room.request(await join(room.owner, "bob", "project_member", room.id))
    assert (await room.decide(handed, other)).status_code == 200
    assert (await room.decide(room.boss, other)).status_code == 403
    assert await room.held() == await room.held("bob") == []


async def test_racing_approvals_give_one(room: Room) -> None:
    asked = await room.request()
    deciders = [room.boss, room.owner]
    for name in ("eve", "zoe"):
        deciders.append(await join(room.owner, name, "project_owner", room.id))
    answers = await asyncio.gather(*(room.decide(one, asked) for one in deciders))
    assert sorted(one.status_code for one in answers) == [200, 409, 409, 409]
    assert await room.held() == [room.role]
    shown = (await room.owner.ask("GET", f"{room.path}/elevations/{asked}")).json()
    assert len(shown["approved_by"]) == 1


async def test_a_changed_role_withdraws_what_was_asked(room: Room) -> None:
    path = f"{room.path}/roles/{room.role}"
    for change in (
        {"permissions": [*SCOPES, "members.write"]},
        {"role_name": "Harmless"},
        {"approvals": 2},
        {"approvals": 1},
    ):
        asked = await room.request()
        is_rule = "approvals" in change
        made = room.rules(**change) if is_rule else room.owner.ask("POST", path, json=change)
        assert (await made).status_code == 200
        assert await room.state(asked) == "withdrawn"
        assert (await room.decide(room.boss, asked)).status_code == 409
    # A direct assignment, a departure and a deletion leave nothing to decide.
    asked = await room.request()
    body = {"role_id": room.role}
    await room.owner.ask("POST", f"{room.path}/users/ann/roles", json=body)
    assert await room.state(asked) == "withdrawn"
    await room.owner.ask("DELETE", f"{room.path}/users/ann/roles/{room.role}")
    approved = await room.request()
    await room.decide(room.boss, approved)
    bob = await join(room.owner, "bob", "project_member", room.id)
    left = await room.request(bob)
    await room.owner.remove("bob", project_id=room.id)
    assert await room.state(left) == "withdrawn"
    assert (await room.owner.ask("DELETE", path)).status_code == 200
    assert await room.state(approved) == "ended"
    assert (await room.decide(room.boss, left)).status_code == 409


async def test_only_who_may_ask_asks(room: Room) -> None:
    reader = await join(room.owner, "reader", "organization_reader")
    outsider = await join(room.owner, "out", "project_member", await project(room.owner))
    robot = await join(room.owner, "robot", "project_member", room.id, kind="service_account")
    for key, code in ((reader, 404), (outsider, 403), (robot, 404)):
        assert (await room.try_request(key)).status_code == code
    found = await room.ann.ask("GET", f"{room.path}/elevation_roles")
    assert [one["id"] for one in found.json()["data"]] == [room.role]
    assert (await reader.ask("GET", f"{room.path}/elevation_roles")).json()["data"] == []
    await room.rules(askers="organization")
    asked = await room.request(reader)
    assert (await room.decide(room.boss, asked)).json()["state"] == "approved"
    await room.rules(askers="none", longest_seconds=None, approvals=None)
    assert (await room.try_request(room.ann)).status_code == 404
    # Others' are seen by those alone who see members.
    for method, path in (("GET", asked), ("POST", f"{asked}/end"), ("POST", f"{asked}/withdraw")):
        refused = await room.ann.ask(method, f"{room.path}/elevations/{path}", json={})
        assert refused.status_code == 404
    assert (await room.ann.ask("GET", f"{room.path}/elevations")).json()["data"] == []


async def test_another_tenant_s_requests_are_unknown(room: Room) -> None:
    stranger = Key(room.owner.front, "", await foreign_key(room.owner.front), {})
    asked = await room.request()
    said = set()
    for elevation in (asked, "elev_" + "n" * 24):
        for method, verb in (
            ("GET", ""),
            *(("POST", f"/{verb}") for verb in ("approve", "deny", "withdraw", "end")),
        ):
            path = f"/v1/organization/elevations/{elevation}{verb}"
            answer = await stranger.ask(method, path, json={})
            said.add((answer.status_code, answer.text.replace(elevation, "…")))
    assert len(said) == 1
    assert said.pop()[0] == 404
    assert (await room.try_request(stranger)).status_code in (403, 404)
    assert (await stranger.ask("GET", "/v1/organization/elevations")).json()["data"] == []


async def test_bad_input_names_the_field(room: Room) -> None:
    for answer, param in (
        (await room.try_request(room.ann, seconds=59), "seconds"),
        (await room.try_request(room.ann, seconds=3601), "seconds"),
        (await room.try_request(room.ann, reason=" "), "reason"),
        (await room.try_request(room.ann, reason="a\x1bb"), "reason"),
        (await room.rules(longest_seconds=5), "longest_seconds"),
        (await room.rules(approvals=3), "approvals"),
        (await room.rules(longest_seconds=None), "longest_seconds"),
        (await room.rules(askers="none"), "askers"),
        (await room.rules(askers="everybody"), "askers"),
    ):
        error = answer.json()["error"]
        assert (answer.status_code, error["param"]) == (400, param), error
    assert (await room.try_request(room.ann, role_id="role_none")).status_code == 404
    await room.request()
    assert (await room.try_request(room.ann, reason="Otherwise.")).status_code == 409
