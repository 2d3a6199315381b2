"""Keys belong to members: whose they are, what they may, and when they end."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.services.front import running_front
from tests.support.services.member_keys import SECONDS, Key, join, project
from tests.support.waiting import soon, until

from windlass.api.users.v1 import users_pb2, users_pb2_grpc
from windlass.users.allowed_networks.store import AllowedNetworksStore
from windlass.users.internal import MAX_CHANGES
from windlass.users.keys.store import MAX_PEOPLE
from windlass.users.ownership.recovery import recover
from windlass.users.tables import key_changes


@pytest.fixture
async def owner(database_url: str, tmp_path: Path) -> AsyncIterator[Key]:
    async with running_front(database_url, tmp_path / "data") as front:
        yield Key(front, "", front.owner_key, {})


async def test_a_key_says_whose_it_is_and_who_made_it(owner: Key) -> None:
    room = await project(owner)
    bob = await join(owner, "bob", "project_member", room)
    assert (bob.body["user_id"], bob.body["made_by"]) == ("bob", "owner")
    me = (await bob.ask("GET", "/v1/me")).json()
    assert (me["principal"]["user_id"], me["principal"]["key_id"]) == ("bob", bob.id)
    own = await bob.make()
    assert (own.body["user_id"], own.body["made_by"]) == ("bob", "bob")
    assert own.body["parent_key_id"] == bob.id


async def test_the_audit_log_names_person_key_and_request(owner: Key) -> None:
    room = await project(owner)
    carol = await join(owner, "carol", "project_owner", room)
    put = await carol.put("dave", "project_member", project_id=room)

    async def rows() -> list[dict[str, Any]]:
        events = (await owner.ask("GET", "/v1/audit_events", params={"limit": 100})).json()["data"]
        request = put.headers["x-request-id"]
        return [one for one in events if one["request_id"] == request]

    found = await until(rows)
    assert [(one["user_id"], one["key_id"]) for one in found] == [("carol", carol.id)]


async def test_a_removed_members_keys_end(owner: Key) -> None:
    room = await project(owner)
    bob = await join(owner, "bob", "project_member", room)
    own = await bob.make()
    assert [await bob.status(), await own.status()] == [200, 200]
    assert (await owner.remove("bob", project_id=room)).status_code == 200
    await bob.ends_within_a_second()
    await own.ends_within_a_second()
    # Who comes again starts anew.
    assert (await owner.put("bob", "project_member", project_id=room)).status_code == 200
    assert [await bob.status(), await own.status()] == [401, 401]


async def test_leaving_the_organization_ends_keys_of_its_projects(owner: Key) -> None:
    room = await project(owner)
    eve = await join(owner, "eve", "organization_reader")
    there = await join(owner, "eve", "project_member", room)
    assert [await eve.status(), await there.status()] == [200, 200]
    await owner.remove("eve")
    await eve.ends_within_a_second()
    await there.ends_within_a_second()
    listed = await owner.ask("GET", "/v1/members", params={"project_id": room})
    assert [one["id"] for one in listed.json()["data"]] == ["owner"]


async def test_a_key_follows_its_owners_role(owner: Key) -> None:
    room = await project(owner)
    carol = await join(owner, "carol", "project_owner", room)
    assert await carol.roles() == ["project_owner"]
    await owner.put("carol", "project_member", project_id=room)
    await until(carol.roles, SECONDS, holds=lambda roles: roles == ["project_member"])
    assert (await carol.put("x", "project_member", project_id=room)).status_code == 403
    await owner.put("carol", "project_owner", project_id=room)
    await until(carol.roles, 5, holds=lambda roles: roles == ["project_owner"])


async def test_a_short_key_makes_no_lasting_one(owner: Key) -> None:
    short = await owner.make("organization_owner", expires_in=6)
    child = await short.make("organization_reader")
    assert child.body["expires_at"] == short.body["expires_at"]
    refused = await short.try_make("organization_reader", expires_in=60)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "expires_in")
    # Nor for anybody else.
    await owner.put("ci", "organization_reader", kind="service_account")
    issued = await short.make("organization_reader", user_id="ci")
    assert issued.body["expires_at"] == short.body["expires_at"]
    await asyncio.sleep(max(0.0, short.body["expires_at"] - time.time()))
    for key in (short, child, issued):
        assert "expired" in await key.ends_within_a_second()


async def test_a_revoked_key_takes_its_children_along(owner: Key) -> None:
    parent = await owner.make("organization_owner")
    child = await parent.make("organization_owner")
    await owner.put("ci", "organization_reader", kind="service_account")
    grandchild = await child.make("organization_reader", user_id="ci")
    beside = await owner.make("organization_reader", user_id="ci")
    assert [await one.status() for one in (parent, child, grandchild)] == [200, 200, 200]
    assert (await owner.revoke(parent)).json()["deleted"]
    for key in (parent, child, grandchild):
        assert "revoked" in await key.ends_within_a_second()
    assert await beside.status() == 200


async def test_members_see_and_revoke_their_own_keys_alone(owner: Key) -> None:
    room = await project(owner)
    bob = await join(owner, "bob", "project_member", room)
    spare = await owner.make(project_id=room, user_id="bob")
    dave = await join(owner, "dave", "project_member", room)
    # A weak key of an owner stands for itself, not for what else the owner has.
    weak, other = await owner.make(project_id=room), await owner.make(project_id=room)
    assert await bob.sees() == {bob.id, spare.id}
    assert await weak.sees() == {weak.id}
    for who, whose in ((bob, dave), (bob, weak), (weak, other), (weak, bob), (dave, spare)):
        assert (await who.revoke(whose)).status_code == 404
        assert await whose.status() == 200
    carol = await join(owner, "carol", "project_owner", room)
    everything = {one.id for one in (bob, spare, dave, weak, other, carol)}
    assert await carol.sees() == everything
    assert (await bob.revoke(spare)).status_code == 200
    assert (await carol.revoke(dave)).status_code == 200


async def test_nobody_makes_keys_for_whom_they_do_not_own(owner: Key) -> None:
    room, side = await project(owner), await project(owner)
    bob = await join(owner, "bob", "project_member", room)
    carol = await join(owner, "carol", "project_owner", room)
    await owner.put("dave", "project_member", project_id=side)
    assert (await bob.try_make(user_id="carol")).status_code == 403
    assert (await carol.try_make(user_id="owner")).status_code == 403
    for user, role in (
        ("dave", "project_member"),
        ("bob", "project_owner"),
        ("eve", "project_member"),
    ):
        refused = await carol.try_make(role, user_id=user)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "user_id")
    made = (await owner.ask("POST", "/v1/organizations", json={"title": "Bolt"})).json()["id"]
    stranger = Key(owner.front, "", "", {})
    headers = {"OpenAI-Organization": made}
    body = {"name": "o", "role": "organization_owner"}
    answer = await owner.ask("POST", "/v1/api_keys", json=body, headers=headers)
    stranger.secret = answer.json()["value"]
    assert (await stranger.try_make("organization_reader", user_id="bob")).status_code == 400
    assert (await stranger.revoke(bob)).status_code == 404
    assert bob.id not in await stranger.sees()
    assert (await stranger.remove("bob")).status_code == 200
    assert (await stranger.remove("bob", project_id=room)).status_code == 404
    assert await bob.status() == 200


def refused_as_last(answer: httpx.Response) -> None:
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "last_owner")
    assert answer.headers["x-should-retry"] == "false"


async def test_the_last_owner_stays(owner: Key) -> None:
    room = await project(owner)
    refused_as_last(await owner.remove("owner"))
    refused_as_last(await owner.put("owner", "organization_owner"))
    refused_as_last(await owner.put("owner", "organization_reader"))
    refused_as_last(await owner.remove("owner", project_id=room))
    refused_as_last(await owner.put("owner", "project_member", project_id=room))
    # A program answers for nothing.
    await owner.put("ci", "project_owner", project_id=room, kind="service_account")
    refused_as_last(await owner.remove("owner", project_id=room))
    answer = await owner.put("ci2", "organization_owner", kind="service_account")
    assert answer.status_code == 400
    # Nor does the organization go in which the platform's last administrator is.
    me = (await owner.ask("GET", "/v1/me")).json()["principal"]["organization_id"]
    other = (await owner.ask("POST", "/v1/organizations", json={"title": "Acme"})).json()["id"]
    headers = {"OpenAI-Organization": other}
    title = {"title": "Default organization"}
    path = f"/v1/organizations/{me}"
    refused_as_last(await owner.ask("DELETE", path, params=title, headers=headers))
    assert await owner.status() == 200


async def test_a_beat_names_so_many_changed_keys_at_most(owner: Key) -> None:
    users = owner.front.app.clients.stub(users_pb2_grpc.UsersInternalServiceStub)
    beats = aiter(users.WatchKeys(users_pb2.WatchKeysRequest()))
    assert (await anext(beats)).reset

    async def heard(number: int) -> users_pb2.KeyBeat:
        async with owner.front.app.database.begin() as connection:
            rows = [{"key_id": f"key_{n:020}"} for n in range(number)]
            await connection.execute(key_changes.insert(), rows)
        while not ((beat := await anext(beats)).changed_key_ids or beat.reset):
            pass
        return beat

    beat = await heard(MAX_CHANGES)
    assert (len(beat.changed_key_ids), beat.reset) == (MAX_CHANGES, False)
    assert beat.ByteSize() < 2**20
    # Of more than these any may have changed.
    beat = await heard(MAX_CHANGES + 1)
    assert (len(beat.changed_key_ids), beat.reset) == (0, True)


async def test_a_beat_names_an_organization_whose_networks_change(owner: Key) -> None:
    users = owner.front.app.clients.stub(users_pb2_grpc.UsersInternalServiceStub)
    beats = aiter(users.WatchKeys(users_pb2.WatchKeysRequest(hears_organizations=True)))
    # Of the release before, which knows of keys alone.
    deaf = aiter(users.WatchKeys(users_pb2.WatchKeysRequest()))
    assert (await anext(beats)).reset
    assert (await anext(deaf)).reset
    readers = {(await owner.make("organization_reader")).id for _ in range(3)}
    me = (await owner.ask("GET", "/v1/me")).json()
    organization = me["principal"]["organization_id"]
    await AllowedNetworksStore(owner.front.app.database).clear(organization)
    while not (beat := await anext(beats)).changed_organization_ids:
        assert not readers & set(beat.changed_key_ids)
    assert list(beat.changed_organization_ids) == [organization]
    # Only those of operators, which are known by where they act.
    assert not readers & set(beat.changed_key_ids)
    async with soon(SECONDS):
        while not (await anext(deaf)).reset:
            pass


async def service_account(owner: Key, room: str, role: str = "project_owner") -> None:
    body = {"kind": "service_account", "project_id": room}
    assert (await owner.put("ci", role, **body)).status_code == 200


async def test_keys_end_with_the_rights_of_who_made_them(owner: Key) -> None:
    room = await project(owner)
    await service_account(owner, room)
    carol = await join(owner, "carol", "project_owner", room)
    deployed = await carol.make(user_id="ci")
    beside = await owner.make(project_id=room, user_id="ci")
    assert (deployed.body["rests_on"], beside.body["rests_on"]) == (["carol", "owner"], ["owner"])
    removed = (await owner.remove("carol", project_id=room)).json()
    assert {one["id"] for one in removed["ended_keys"]} == {deployed.id, carol.id}
    assert "revoked" in await deployed.ends_within_a_second()
    assert await beside.status() == 200
    # Who comes again starts anew.
    await owner.put("carol", "project_owner", project_id=room)
    assert await deployed.status() == 401


async def test_keys_follow_the_role_of_who_made_them(owner: Key) -> None:
    room = await project(owner)
    await service_account(owner, room)
    carol = await join(owner, "carol", "project_owner", room)
    deployed = await carol.make("project_owner", user_id="ci")
    # What a member makes with such a key rests on its maker as well.
    further = await deployed.make("project_owner")
    assert further.body["rests_on"] == ["carol", "ci", "owner"]
    assert await further.roles() == await deployed.roles() == ["project_owner"]
    await owner.put("carol", "project_member", project_id=room)
    await until(deployed.roles, SECONDS, holds=lambda roles: roles == ["project_member"])
    assert await further.roles() == ["project_member"]
    await owner.put("carol", "project_owner", project_id=room)
    await until(deployed.roles, 5, holds=lambda roles: roles == ["project_owner"])


async def test_keys_made_with_a_key_that_its_maker_has_seen_end_as_well(owner: Key) -> None:
    """Whoever made Bob's key can act as Bob, and make another of his."""
    room = await project(owner)
    carol = await join(owner, "carol", "project_owner", room)
    await owner.put("bob", "project_member", project_id=room)
    handed = await carol.make(user_id="bob")
    minted = await handed.make()
    await owner.remove("carol", project_id=room)
    await minted.ends_within_a_second()
    await handed.ends_within_a_second()
    # Bob is a member still, and gets a key from somebody else.
    assert await (await owner.make(project_id=room, user_id="bob")).status() == 200


async def test_a_key_rests_on_so_many_members_at_most(owner: Key) -> None:
    holder = owner
    for number in range(MAX_PEOPLE - 1):
        holder = await join(holder, f"user{number}", "organization_owner")
    assert len(holder.body["rests_on"]) == MAX_PEOPLE - 1
    last = await join(holder, "last", "organization_owner")
    refused = await last.try_make("organization_owner")
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "user_id")


async def test_who_has_other_roles_left_takes_no_keys_along(owner: Key) -> None:
    room = await project(owner)
    await service_account(owner, room)
    carol = await join(owner, "carol", "organization_owner")
    await owner.put("carol", "project_owner", project_id=room)
    there = await carol.make("project_owner", project_id=room)
    deployed = await there.make(user_id="ci")
    removed = (await owner.remove("carol", project_id=room)).json()
    assert [one["id"] for one in removed["ended_keys"]] == [there.id]
    await there.ends_within_a_second()
    assert [await deployed.status(), await carol.status()] == [200, 200]
    # What was made with a key ends with one that leaks, also when one between them has ended.
    assert (await owner.revoke(carol)).status_code == 200
    await deployed.ends_within_a_second()


async def test_an_owner_sees_beforehand_which_keys_a_change_affects(owner: Key) -> None:
    room = await project(owner)
    await service_account(owner, room)
    carol = await join(owner, "carol", "project_owner", room)
    strong = await carol.make("project_owner", user_id="ci")
    weak = await carol.make(user_id="ci")

    async def affected(key: Key, **query: Any) -> dict[str, str | None]:
        query = {"project_id": room, **query}
        answer = await key.ask("GET", "/v1/members/carol/affected_keys", params=query)
        assert answer.status_code == 200, answer.text
        return {one["id"]: one["becomes"] for one in answer.json()["data"]}

    assert await affected(owner) == {weak.id: None, strong.id: None, carol.id: None}
    demoted = {strong.id: "project_member", carol.id: "project_member"}
    assert await affected(owner, role="project_member") == demoted
    assert await affected(owner, role="project_owner") == {}
    (first,) = await affected(owner, limit=1)
    assert {first} | set(await affected(owner, after=first)) == {weak.id, strong.id, carol.id}
    # To see is to change nothing, and is for owners alone.
    assert [await one.status() for one in (carol, strong, weak)] == [200, 200, 200]
    for key, status in ((weak, 403), (await join(owner, "rita", "organization_reader"), 403)):
        answer = await key.ask("GET", "/v1/members/carol/affected_keys")
        assert answer.status_code == status


async def test_the_audit_log_names_the_keys_that_end(owner: Key) -> None:
    room = await project(owner)
    await service_account(owner, room)
    carol = await join(owner, "carol", "project_owner", room)
    deployed = await carol.make(user_id="ci")
    removed = await owner.remove("carol", project_id=room)

    async def rows() -> list[str]:
        events = (await owner.ask("GET", "/v1/audit_events", params={"limit": 100})).json()["data"]
        request = removed.headers["x-request-id"]
        return [one["resource"] for one in events if one["request_id"] == request]

    # They need not come to the log together.
    found = await until(rows, holds=lambda found: len(found) >= 3)
    assert sorted(found) == sorted(["carol", carol.id, deployed.id])


async def own_root(owner: Key, user: str, folder: Path) -> Key:
    """A key of somebody that nobody made for them, as `windlass admin recover` makes it."""
    made = await recover(
        owner.front.app.database, user_id=user, path=folder / f"{user}.key", key_prefix="wl-"
    )
    return Key(owner.front, made.id, (folder / f"{user}.key").read_text().strip(), {})


def refused_as_own(answer: httpx.Response) -> None:
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "own_key_affected")


async def test_nobody_ends_the_key_that_they_call_with(owner: Key, tmp_path: Path) -> None:
    room = await project(owner)
    ann = await join(owner, "ann", "platform_admin")
    refused_as_own(await ann.remove("owner"))
    refused_as_own(await ann.put("owner", "organization_reader"))
    assert await owner.status() == 200
    root = await own_root(owner, "ann", tmp_path)
    removed = (await root.remove("owner")).json()
    assert {one["id"] for one in removed["ended_keys"]} >= {ann.id}
    await owner.ends_within_a_second()
    await ann.ends_within_a_second()
    assert await root.roles() == ["platform_admin"]
    listed = await root.ask("GET", "/v1/members", params={"project_id": room})
    assert [(one["id"], one["role"]) for one in listed.json()["data"]] == [("ann", "project_owner")]
    refused_as_last(await root.remove("ann"))


async def test_two_owners_who_remove_each_other_leave_one(owner: Key, tmp_path: Path) -> None:
    await owner.put("ann", "platform_admin")
    ann = await own_root(owner, "ann", tmp_path)
    answers = await asyncio.gather(owner.remove("ann"), ann.remove("owner"))
    assert 200 in {answer.status_code for answer in answers}
    assert sorted([await owner.status(), await ann.status()])[0] == 200
