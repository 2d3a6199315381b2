"""Policies of organizations for keys: how long they live, whose they are, that they are used."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from tests.support.services.front import running_front
from tests.support.services.member_keys import SECONDS, Key, join, project
from tests.support.waiting import stays, until

from windlass.core.clock import now_seconds
from windlass.users.keys.unused import DAY_SECONDS, TOPIC
from windlass.users.ownership.recovery import recover
from windlass.users.tables import api_keys, key_policies

POLICY = "/v1/organization/key_policy"
OWNER = "organization_owner"
HOUR = 3600


@pytest.fixture
async def operator(database_url: str, tmp_path: Path) -> AsyncIterator[Key]:
    async with running_front(database_url, tmp_path / "data") as front:
        yield Key(front, "", front.owner_key, {})


@pytest.fixture
async def owner(operator: Key) -> Key:
    """An organization's owner, who operates nothing."""
    return await owner_of(operator, "Acme")


async def owner_of(operator: Key, title: str) -> Key:
    made = (await operator.ask("POST", "/v1/organizations", json={"title": title})).json()["id"]
    elsewhere = {"OpenAI-Organization": made}
    member = {"user_id": f"owner-of-{title}", "role": OWNER}
    assert (await operator.ask("PUT", "/v1/members", json=member, headers=elsewhere)).is_success
    body = {"name": "first", **member}
    answer = await operator.ask("POST", "/v1/api_keys", json=body, headers=elsewhere)
    return Key(operator.front, answer.json()["id"], answer.json()["value"], answer.json())


async def put(by: Key, *, dry_run: bool = False, **policy: Any) -> dict[str, Any]:
    answer = await by.ask("PUT", POLICY, json=policy, params={"dry_run": dry_run})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def refusal(answer: httpx.Response) -> tuple[int, str, str]:
    error = answer.json()["error"]
    return answer.status_code, error["code"], error["param"]


async def update(by: Key, key: Key, **body: Any) -> httpx.Response:
    return await by.ask("PATCH", f"/v1/api_keys/{key.id}", json=body)


async def rotate(by: Key, key: Key) -> httpx.Response:
    return await by.ask("POST", f"/v1/api_keys/{key.id}/rotate", json={})


async def age(key: Key, days: int) -> None:
    """Makes a key older than it is, and never used since."""
    values = {"created_at": now_seconds() - days * DAY_SECONDS, "last_used_at": 0, "rotated_at": 0}
    async with key.front.app.database.begin() as connection:
        statement = api_keys.update().where(api_keys.c.id == key.id)
        await connection.execute(statement.values(values))


async def ended(by: Key) -> set[str]:
    listed = await by.ask("GET", "/v1/api_keys", params={"limit": 100})
    return {one["id"] for one in listed.json()["data"] if one["revoked_at"]}


async def test_keys_end_within_the_longest_life(owner: Key) -> None:
    endless = await owner.make(OWNER)
    shown = await put(owner, longest_life=HOUR)
    assert (shown["longest_life"], shown["ended_keys"]) == (HOUR, [])
    too_long = (400, "key_lives_too_long", "expires_in")
    for seconds in (0, HOUR + 60):
        refused = await owner.try_make(OWNER, expires_in=seconds)
        assert refusal(refused) == too_long
        assert str(HOUR) in refused.json()["error"]["message"]
    key = await owner.make(OWNER, expires_in=HOUR)
    # One that says no end has that of the key that makes it.
    assert (await key.make(OWNER)).body["expires_at"] == key.body["expires_at"]
    for seconds in (0, HOUR + 60):
        assert refusal(await update(owner, key, expires_in=seconds)) == too_long
    # What was there before stays, until it gets another secret or another end.
    assert (await update(owner, endless, name="renamed")).status_code == 200
    assert refusal(await rotate(owner, endless)) == (400, "key_lives_too_long", "key_id")
    assert (await update(owner, endless, expires_in=HOUR)).status_code == 200
    assert (await rotate(owner, endless)).status_code == 200
    assert (await put(owner))["longest_life"] == 0
    assert (await owner.try_make(OWNER)).status_code == 200


async def test_only_service_accounts_get_keys(operator: Key, owner: Key) -> None:
    room = await project(owner)
    await put(owner, service_accounts_only=True)
    not_people = (403, "service_accounts_only", "user_id")
    for body in ({}, {"user_id": "owner-of-Acme"}):
        assert refusal(await owner.try_make(OWNER, **body)) == not_people
    bot = await join(owner, "bot", "project_member", room, kind="service_account")
    assert (await bot.make()).body["user_id"] == "bot"
    assert (await owner.put("ann", "project_member", project_id=room)).status_code == 200
    assert refusal(await owner.try_make(project_id=room, user_id="ann")) == not_people
    # Who has lost all keys gets one from an operator.
    body = {"name": "again", "role": OWNER, "user_id": "owner-of-Acme"}
    elsewhere = {"OpenAI-Organization": owner.body["organization_id"]}
    answer = await operator.ask("POST", "/v1/api_keys", json=body, headers=elsewhere)
    assert answer.status_code == 200, answer.text


async def test_an_operator_comes_back_from_the_machine(operator: Key, tmp_path: Path) -> None:
    await put(operator, longest_life=HOUR, service_accounts_only=True)
    path = tmp_path / "again.key"
    database = operator.front.app.database
    await recover(database, user_id="ann", path=path, key_prefix="wl-")
    assert await Key(operator.front, "", path.read_text().strip(), {}).status() == 200


async def test_unused_keys_are_shown_and_then_end(owner: Key) -> None:
    idle, old, young, rotated, above = [await owner.make(OWNER) for _ in range(5)]
    used_below, unused_below = [await above.make(OWNER) for _ in range(2)]
    assert await idle.status() == 200, "it is in the gateway's cache"
    for key in (idle, old, rotated, above, used_below, unused_below):
        await age(key, 31)
    await age(young, 29)
    assert await used_below.status() == 200
    assert (await rotate(owner, rotated)).status_code == 200
    shown = await put(owner, dry_run=True, unused_days=30)
    expected = {idle.id, old.id, unused_below.id}
    assert {one["id"] for one in shown["ended_keys"]} == expected
    assert (await owner.ask("GET", POLICY)).json()["unused_days"] == 0
    assert await ended(owner) == set()
    assert {one["id"] for one in (await put(owner, unused_days=30))["ended_keys"]} == expected
    assert "revoked" in await idle.ends_within_a_second()
    await until(lambda: ended(owner), SECONDS, holds=lambda got: got == expected)
    for key in (young, above, used_below):
        assert await key.status() == 200


async def test_a_key_ends_when_its_turn_comes_whoever_had_begun(owner: Key) -> None:
    """A process that died with the lease leaves the work to another."""
    await put(owner, unused_days=30)

    async def looked() -> bool:
        async with owner.front.app.database.autocommit() as connection:
            query = sa.select(key_policies.c.looked_at, key_policies.c.lease_owner)
            row = (await connection.execute(query)).one()
        return row.looked_at > 0 and row.lease_owner is None

    await until(looked)
    idle = await owner.make(OWNER)
    await age(idle, 31)
    left = {"lease_owner": "gone", "lease_until": sa.func.now(), "looked_at": 0}
    async with owner.front.app.database.begin() as connection:
        await connection.execute(key_policies.update().values(left))
    owner.front.app.wake.touch(TOPIC)
    await until(lambda: ended(owner), holds=lambda got: got == {idle.id})


async def test_a_policy_is_of_one_organization_and_its_owners(operator: Key, owner: Key) -> None:
    theirs = await owner_of(operator, "Bolt")
    room = await project(owner)
    idle = await theirs.make(OWNER)
    await age(idle, 100)
    await put(owner, longest_life=HOUR, unused_days=30)
    assert (await theirs.ask("GET", POLICY)).json()["longest_life"] == 0
    assert (await theirs.try_make(OWNER)).status_code == 200

    async def idle_lives() -> bool:
        return idle.id not in await ended(theirs)

    await stays(idle_lives)
    elsewhere = {"OpenAI-Organization": owner.body["organization_id"]}
    for method in ("GET", "PUT"):
        answer = await theirs.ask(method, POLICY, headers=elsewhere, json={})
        assert answer.status_code == 403
    key = await owner.make("project_owner", project_id=room, expires_in=HOUR)
    for dry_run in (True, False):
        refused = await key.ask("PUT", POLICY, json={}, params={"dry_run": dry_run})
        assert refused.status_code == 403
    shown = (await key.ask("GET", POLICY)).json()
    assert (shown["longest_life"], shown["unused_days"]) == (HOUR, 30)


async def test_a_policy_has_bounds(owner: Key) -> None:
    for field, value in (
        ("longest_life", 3599),
        ("longest_life", -1),
        ("unused_days", 3651),
        ("unused_days", -1),
    ):
        refused = await owner.ask("PUT", POLICY, json={field: value})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, field)
