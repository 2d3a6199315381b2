"""Rotation: another secret, the same key, and both for as long as was asked."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from tests.support.services.front import running_front
from tests.support.services.member_keys import Key, join, project


@pytest.fixture
async def owner(database_url: str, tmp_path: Path) -> AsyncIterator[Key]:
    async with running_front(database_url, tmp_path / "data") as front:
        yield Key(front, "", front.owner_key, {})


async def try_rotate(by: Key, key: Key, overlap: int = 0) -> httpx.Response:
    return await by.ask("POST", f"/v1/api_keys/{key.id}/rotate", json={"overlap": overlap})


async def rotate(by: Key, key: Key, overlap: int = 0) -> Key:
    answer = await try_rotate(by, key, overlap)
    assert answer.status_code == 200, answer.text
    return replace(key, secret=answer.json()["value"], body=answer.json())


async def test_the_id_stays_and_the_old_secret_ends(owner: Key) -> None:
    key = await owner.make("organization_owner", scopes=["keys.write", "files.read"])
    assert await key.status() == 200
    rotated = await rotate(owner, key)
    assert rotated.secret != key.secret
    assert rotated.body["id"] == key.id
    assert rotated.body["rotated_at"] > 0
    assert rotated.body["scopes"] == key.body["scopes"]
    assert await rotated.status() == 200
    await key.ends_within_a_second()
    me = (await rotated.ask("GET", "/v1/me")).json()
    assert me["principal"]["key_id"] == key.id


async def test_both_secrets_answer_until_the_overlap_is_over(owner: Key) -> None:
    key = await owner.make("organization_owner")
    rotated = await rotate(key, key, overlap=6)
    until_then = rotated.body["previous_until"]
    assert [await key.status(), await rotated.status()] == [200, 200]
    await asyncio.sleep(max(0.0, until_then - time.time()))
    assert "rotated" in await key.ends_within_a_second()
    assert await rotated.status() == 200


async def test_the_old_secret_cannot_live_on(owner: Key) -> None:
    key = await owner.make("organization_owner")
    rotated = await rotate(owner, key, overlap=3600)
    assert (await try_rotate(key, key)).status_code == 403
    assert (await key.try_make("organization_reader")).status_code == 403
    assert [await key.status(), await rotated.status()] == [200, 200]
    assert (await rotated.try_make("organization_reader")).status_code == 200


async def test_a_second_rotation_ends_the_first_secret(owner: Key) -> None:
    first = await owner.make("organization_owner")
    second = await rotate(owner, first, overlap=3600)
    third = await rotate(owner, second, overlap=3600)
    await first.ends_within_a_second()
    assert [await second.status(), await third.status()] == [200, 200]
    # A leak ends all of them.
    assert (await owner.revoke(third)).status_code == 200
    for key in (second, third):
        assert "revoked" in await key.ends_within_a_second()


async def test_what_another_key_rotates_is_made_anew_with_it(owner: Key) -> None:
    room = await project(owner)
    carol = await join(owner, "carol", "project_owner", room)
    other = await owner.make("project_owner", project_id=room, expires_in=3600)
    await owner.put("bob", "project_member", project_id=room)
    key = await carol.make(user_id="bob")
    minted = await key.make()
    refused = await try_rotate(other, key, overlap=60)
    assert (refused.status_code, refused.json()["error"]["param"]) == (409, "overlap")
    assert await key.status() == 200
    rotated = await rotate(other, key)
    assert rotated.body["parent_key_id"] == other.id
    assert rotated.body["expires_at"] == other.body["expires_at"]
    assert rotated.body["rests_on"] == ["carol", "owner"]
    await key.ends_within_a_second()
    # What was made with the secret of before stays with those who know that.
    assert (await owner.revoke(carol)).status_code == 200
    await minted.ends_within_a_second()
    assert await rotated.status() == 200
    # It ends with the key that has seen its secret.
    assert (await owner.revoke(other)).status_code == 200
    await rotated.ends_within_a_second()


async def test_a_narrow_key_gets_no_strong_secret(owner: Key) -> None:
    room = await project(owner)
    strong = await owner.make("project_owner", project_id=room)
    child = await strong.make("project_owner")
    narrow = await owner.make("project_owner", project_id=room, scopes=["keys.write"])
    below = await narrow.make("project_owner")
    assert (await try_rotate(narrow, strong)).status_code == 404
    # Nor may a key take over the one that it was made with.
    assert (await try_rotate(child, strong)).status_code == 403
    assert (await try_rotate(below, narrow)).status_code == 404
    assert [await one.status() for one in (strong, child, narrow, below)] == [200] * 4
    assert await (await rotate(narrow, narrow)).status() == 200


async def test_what_has_ended_is_not_rotated(owner: Key) -> None:
    key = await owner.make("organization_owner")
    assert (await owner.revoke(key)).status_code == 200
    assert (await try_rotate(owner, key)).status_code == 409
    for overlap in (-1, 31 * 86400):
        answer = await try_rotate(owner, key, overlap)
        assert answer.status_code == 400


async def test_two_rotations_at_once_leave_one_secret(owner: Key) -> None:
    key = await owner.make("organization_owner")
    answers = await asyncio.gather(*(try_rotate(owner, key) for _ in range(4)))
    secrets = [one.json()["value"] for one in answers if one.status_code == 200]
    assert len(secrets) == 4
    alive = [await replace(key, secret=secret).status() for secret in secrets]
    assert sorted(alive) == [200, 401, 401, 401]
