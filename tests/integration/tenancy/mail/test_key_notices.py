"""Who owns a key hears before it ends: from the audit log, which webhooks get, and by mail."""

import asyncio
from typing import Any

import orjson
import pytest
from tests.support.services.mail_server import MailServer
from tests.support.services.member_keys import Key
from tests.support.waiting import stays, until

from windlass.core.clock import now_seconds
from windlass.users.keys import notices, unused
from windlass.users.mail.outbox import MailOutbox
from windlass.users.tables import api_keys, people

DAY = 86_400
ANN = "ann@example.com"


async def change(key: Key, **values: Any) -> None:
    async with key.front.app.database.begin() as connection:
        await connection.execute(api_keys.update().where(api_keys.c.id == key.id).values(values))


async def looked(owner: Key) -> None:
    """Has the notices looked for now."""
    owner.front.app.wake.touch(notices.TOPIC)


async def told(owner: Key) -> list[dict[str, Any]]:
    """Details of the events, oldest first."""
    answer = await owner.ask("GET", "/v1/audit_events", params={"limit": 100})
    events = answer.json()["data"]
    return [one for one in reversed(events) if one["action"] == notices.ACTION]


async def known_as_ann(owner: Key) -> str:
    """An address of the owner's, as a sign-in or a directory tells it."""
    me = (await owner.ask("GET", "/v1/me")).json()["principal"]
    row = {
        "organization_id": me["organization_id"], "user_id": me["user_id"], "email": ANN,
        "created_at": 1, "updated_at": 1,
    }  # fmt: skip
    async with owner.front.app.database.begin() as connection:
        await connection.execute(people.insert().values(row))
    return str(me["user_id"])


@pytest.fixture
async def key(owner: Key) -> Key:
    """A key of an owner with an address; it lives for three weeks, and has five days left."""
    await known_as_ann(owner)
    made = await owner.make("organization_owner")
    now = now_seconds()
    await change(made, created_at=now - 16 * DAY, expires_at=now + 5 * DAY)
    return made


async def test_a_key_that_expires_is_told_of_once(owner: Key, server: MailServer, key: Key) -> None:
    await looked(owner)
    (event,) = await until(lambda: told(owner))
    assert event["resource"] == key.id
    assert orjson.loads(event["after"])["why"] == "expires"
    await until(lambda: server.to(ANN))
    (mail,) = server.mails
    assert key.id in mail.get_content()
    assert key.secret not in mail.as_string()
    await looked(owner)

    async def once() -> bool:
        return len(await told(owner)) == 1 and len(server.mails) == 1

    await stays(once)


async def test_who_makes_it_live_longer_hears_of_the_next_end(
    owner: Key, server: MailServer, key: Key
) -> None:
    await looked(owner)
    await until(lambda: server.to(ANN))
    # A rotation leaves the end as it is.
    await change(key, expires_at=now_seconds() + 6 * DAY, rotated_at=now_seconds() - DAY)
    await looked(owner)
    await until(lambda: len(server.to(ANN)) == 2)


async def test_what_lives_shortly_ends_or_has_no_owner_with_an_address_is_not_mailed(
    owner: Key, server: MailServer, key: Key
) -> None:
    now = now_seconds()
    short, gone, later = [await owner.make("organization_owner") for _ in range(3)]
    await change(short, created_at=now - DAY, expires_at=now + DAY)
    await change(gone, created_at=now - 30 * DAY, expires_at=now + DAY, revoked_at=now)
    await change(later, created_at=now - 30 * DAY, expires_at=now + 8 * DAY)
    nobodys = await owner.make("organization_owner")
    await change(
        nobodys, created_at=now - 30 * DAY, expires_at=now + DAY, user_id="without-address"
    )
    await looked(owner)
    events = await until(lambda: told(owner), holds=lambda found: len(found) >= 2)
    assert {one["resource"] for one in events} == {key.id, nobodys.id}
    await until(lambda: server.mails)
    assert [key.id in one.get_content() for one in server.mails] == [True]


async def test_a_key_that_nobody_uses_is_told_of_before_it_ends(
    owner: Key, server: MailServer
) -> None:
    await known_as_ann(owner)
    idle, young = [await owner.make("organization_owner") for _ in range(2)]
    await change(idle, created_at=now_seconds() - 25 * DAY)
    await change(young, created_at=now_seconds() - 20 * DAY)
    answer = await owner.ask("PUT", "/v1/organization/key_policy", json={"unused_days": 30})
    assert answer.status_code == 200, answer.text
    owner.front.app.wake.touch(unused.TOPIC)
    (event,) = await until(lambda: told(owner))
    assert (event["resource"], orjson.loads(event["after"])["why"]) == (idle.id, "unused")
    await until(lambda: server.to(ANN))
    (mail,) = server.mails
    assert "was not used" in mail.get_content()
    assert await idle.status() == 200


async def test_use_in_time_moves_the_end_and_a_short_life_is_told_of_late(
    owner: Key, server: MailServer
) -> None:
    await known_as_ann(owner)
    idle, busy = [await owner.make("organization_owner") for _ in range(2)]
    now = now_seconds()
    await change(idle, created_at=now - 7 * DAY)
    await change(busy, created_at=now - 7 * DAY, last_used_at=now - 5 * DAY)
    await owner.ask("PUT", "/v1/organization/key_policy", json={"unused_days": 8})
    owner.front.app.wake.touch(unused.TOPIC)
    (event,) = await until(lambda: told(owner))
    assert event["resource"] == idle.id
    assert orjson.loads(event["after"])["ends_at"] == now + DAY
    # What it is told of is one end; another has its own notice.
    await change(idle, expires_at=now + 5 * DAY, created_at=now - 20 * DAY, last_used_at=now)
    await looked(owner)
    events = await until(lambda: told(owner), holds=lambda found: len(found) == 2)
    assert orjson.loads(events[1]["after"])["why"] == "expires"


async def test_several_processes_tell_once(owner: Key, server: MailServer) -> None:
    now, app = now_seconds(), owner.front.app
    made = {(await owner.make("organization_owner")).id for _ in range(20)}
    async with app.database.begin() as connection:
        soon = {"created_at": now - 16 * DAY, "expires_at": now + 5 * DAY}
        await connection.execute(api_keys.update().where(api_keys.c.id.in_(made)).values(**soon))
    several = [notices.KeyNotices(app.database, _Unused(), app.audit) for _ in range(4)]
    await asyncio.gather(*(one.once() for one in several))
    events = await until(lambda: told(owner), holds=lambda found: len(found) >= 20)
    assert sorted(one["resource"] for one in events) == sorted(made)


class _Unused(MailOutbox):
    """Mails nothing."""

    def __init__(self) -> None:
        self.enabled = False

    def queued(self) -> None:
        return None
