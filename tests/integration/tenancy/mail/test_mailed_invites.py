"""Invites whose links are mailed, as OpenAI mails its own."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from tests.support.services.front import running_front
from tests.support.services.mail_server import MailServer
from tests.support.services.member_keys import Key
from tests.support.waiting import stays, until

from windlass.bounds import MAX_DAILY_MAILS, MAX_DAILY_MAILS_TO_ONE
from windlass.core.clock import now_seconds
from windlass.users.mail import outbox
from windlass.users.mail.tables import mails
from windlass.users.tables import people

INVITES = "/v1/organization/invites"
ANN = "ann@example.com"


async def invite(owner: Key, **body: Any) -> dict[str, Any]:
    answer = await owner.ask("POST", INVITES, json={"email": ANN, "role": "reader", **body})
    assert answer.status_code == 200, answer.text
    made: dict[str, Any] = answer.json()
    return made


async def shown(owner: Key, made: dict[str, Any]) -> dict[str, Any]:
    one: dict[str, Any] = (await owner.ask("GET", f"{INVITES}/{made['id']}")).json()
    return one


async def row(owner: Key) -> Any:
    async with owner.front.app.database.autocommit() as connection:
        return (await connection.execute(mails.select())).one()


async def test_the_link_is_in_the_mail_and_then_nowhere(owner: Key, server: MailServer) -> None:
    made = await invite(owner)
    assert made["mailed_at"] is None
    found = await until(lambda: shown(owner, made), holds=lambda one: one["mailed_at"])
    assert found["mail_error"] is None
    assert (await owner.ask("GET", INVITES)).json()["data"] == [found]
    (mail,) = server.to(ANN)
    text = mail.get_content()
    assert re.findall(r"https?://\S+", text) == [made["link"]]
    assert made["link"].startswith("https://windlass.example/invites/")
    assert mail["Auto-Submitted"] == "auto-generated"
    assert server.envelopes == [("windlass@example.com", [ANN])]
    stored = await row(owner)
    assert (stored.state, stored.sealed, stored.lease_owner) == ("sent", b"", None)


async def test_only_who_has_an_address_is_mailed(owner: Key, server: MailServer) -> None:
    await invite(owner, email="")
    await invite(owner, mail=False)
    answer = await owner.ask("POST", INVITES, json={"role": "reader", "mail": True})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "email")
    made = await invite(owner, mail=True)
    await until(lambda: shown(owner, made), holds=lambda one: one["mailed_at"])
    assert len(server.mails) == 1


async def test_what_a_tenant_chose_is_no_text_of_theirs(owner: Key, server: MailServer) -> None:
    title = "Prize https://evil.example/win\r\nBcc: all@example.com"
    answer = await owner.ask("POST", "/v1/organizations", json={"title": title})
    if answer.status_code == 400:
        title = title.partition("\r")[0]
        answer = await owner.ask("POST", "/v1/organizations", json={"title": title})
    elsewhere = {"OpenAI-Organization": answer.json()["id"]}
    body = {"email": ANN, "role": "reader"}
    made = await owner.ask("POST", INVITES, json=body, headers=elsewhere)
    assert made.status_code == 200, made.text
    await until(lambda: server.mails)
    (mail,) = server.mails
    assert re.findall(r"https?://\S+", mail.get_content()) == [made.json()["link"]]
    assert "evil.example" not in mail.as_string()
    assert mail["Bcc"] is None


async def test_a_server_that_is_down_is_tried_again(
    owner: Key, server: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "RETRY_SECONDS", 1)
    server.refusal = "451 greylisted"
    made = await invite(owner)
    waiting = await until(lambda: shown(owner, made), holds=lambda one: one["mail_error"])
    assert "451" in waiting["mail_error"]
    assert waiting["mailed_at"] is None
    server.refusal = ""
    found = await until(lambda: shown(owner, made), holds=lambda one: one["mailed_at"])
    assert found["mail_error"] is None
    assert len(server.mails) == 1


async def test_who_is_unknown_is_told_at_once_and_for_good(owner: Key, server: MailServer) -> None:
    server.refusal = "550 no such mailbox"
    made = await invite(owner)
    found = await until(lambda: shown(owner, made), holds=lambda one: one["mail_error"])
    assert found["mail_error"] == "the address was refused with 550"
    stored = await row(owner)
    assert (stored.state, stored.sealed) == ("failed", b"")


async def test_an_invite_that_is_taken_back_is_not_mailed(owner: Key, server: MailServer) -> None:
    server.refusal = "451 later"
    made = await invite(owner)
    await until(lambda: shown(owner, made), holds=lambda one: one["mail_error"])
    assert (await owner.ask("DELETE", f"{INVITES}/{made['id']}")).status_code == 200
    stored = await row(owner)
    assert (stored.state, stored.sealed) == ("withdrawn", b"")
    server.refusal = ""
    async with owner.front.app.database.begin() as connection:
        await connection.execute(mails.update().values(not_before=0))
    owner.front.app.wake.touch(outbox.TOPIC)

    async def unsent() -> bool:
        return not server.mails

    await stays(unsent)


async def test_whoever_takes_back_what_is_on_its_way_has_had_it_counted(
    owner: Key, server: MailServer
) -> None:
    made = await invite(owner)
    await until(lambda: server.mails)
    assert (await owner.ask("DELETE", f"{INVITES}/{made['id']}")).status_code == 200
    assert (await row(owner)).organization_id


async def test_a_mail_whose_sender_died_is_sent_by_another(owner: Key, server: MailServer) -> None:
    server.refusal = "451 later"
    made = await invite(owner)
    await until(lambda: shown(owner, made), holds=lambda one: one["mail_error"])
    server.refusal = ""
    left = {"lease_owner": "gone", "lease_until": sa.func.now(), "not_before": 0}
    async with owner.front.app.database.begin() as connection:
        await connection.execute(mails.update().values(left))
    owner.front.app.wake.touch(outbox.TOPIC)
    await until(lambda: shown(owner, made), holds=lambda one: one["mailed_at"])
    assert len(server.mails) == 1


@pytest.mark.parametrize("state", ["sent", "failed"])
async def test_an_organization_mails_so_much_a_day(
    owner: Key, server: MailServer, state: str
) -> None:
    """What the server refused counts: or it would be asked about any number of addresses."""
    organization_id = (await owner.ask("GET", "/v1/me")).json()["principal"]["organization_id"]
    old = {
        "organization_id": organization_id, "about": "", "kind": "invite", "sealed": b"",
        "recipient": "others@example.com", "state": state, "failures": 1, "expires_at": 0,
        "created_at": now_seconds(),
    }  # fmt: skip
    async with owner.front.app.database.begin() as connection:
        rows = [{"id": f"mail_{number}", **old} for number in range(MAX_DAILY_MAILS)]
        await connection.execute(mails.insert(), rows)
    body = {"email": ANN, "role": "reader", "mail": True}
    answer = await owner.ask("POST", INVITES, json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "too_many_mails")
    assert (await owner.ask("GET", INVITES)).json()["data"] == []
    # Who did not insist has the link, and is told.
    made = await invite(owner)
    assert "in a day" in (await shown(owner, made))["mail_error"]
    assert server.mails == []


async def test_one_address_gets_so_much_a_day(owner: Key, server: MailServer) -> None:
    for _ in range(MAX_DAILY_MAILS_TO_ONE):
        await invite(owner)
    body = {"email": ANN, "role": "reader", "mail": True}
    assert (await owner.ask("POST", INVITES, json=body)).status_code == 429
    assert (await owner.ask("POST", INVITES, json=body | {"email": "b@c.d"})).status_code == 200


async def test_an_address_that_is_none_is_mailed_nothing(owner: Key, server: MailServer) -> None:
    address = "evil.example/win<victim@corp.com>"
    body = {"email": address, "role": "reader", "mail": True}
    answer = await owner.ask("POST", INVITES, json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "email")
    made = await invite(owner, email=address)
    assert (await shown(owner, made))["mail_error"]
    assert server.envelopes == []


async def test_a_mail_that_came_too_late_to_be_true_is_not_sent(
    owner: Key, server: MailServer
) -> None:
    server.refusal = "451 later"
    made = await invite(owner)
    await until(lambda: shown(owner, made), holds=lambda one: one["mail_error"])
    server.refusal = ""
    async with owner.front.app.database.begin() as connection:
        await connection.execute(mails.update().values(not_before=0, expires_at=now_seconds()))
    owner.front.app.wake.touch(outbox.TOPIC)
    await until(lambda: row(owner), holds=lambda one: one.state == "withdrawn")
    assert server.mails == []


async def test_who_is_removed_is_forgotten_by_mail_too(owner: Key, server: MailServer) -> None:
    await owner.put("ann", "organization_reader")
    me = (await owner.principal())["organization_id"]
    row_of_ann = {
        "organization_id": me, "user_id": "ann", "email": ANN, "created_at": 1, "updated_at": 1,
    }  # fmt: skip
    async with owner.front.app.database.begin() as connection:
        await connection.execute(people.insert().values(row_of_ann))
    made = await invite(owner)
    await until(lambda: shown(owner, made), holds=lambda one: one["mailed_at"])
    assert (await row(owner)).recipient == ANN
    assert (await owner.remove("ann")).status_code == 200
    assert (await row(owner)).recipient == ""


@pytest.fixture
async def without(database_url: str, tmp_path: Path) -> AsyncIterator[Key]:
    """An installation that sends no mail."""
    async with running_front(database_url, tmp_path / "data") as front:
        yield Key(front, "", front.owner_key, {})


async def test_where_nothing_is_mailed_who_asks_for_it_is_told(without: Key) -> None:
    made = await invite(without)
    body = {"email": ANN, "role": "reader", "mail": True}
    answer = await without.ask("POST", INVITES, json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "mail_not_set_up")

    async def is_unmailed() -> bool:
        return (await shown(without, made))["mailed_at"] is None

    await stays(is_unmailed)
