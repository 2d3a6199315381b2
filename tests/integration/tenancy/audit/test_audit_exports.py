"""Exports: every event reaches every destination, in order, whatever fails on the way."""

import asyncio
import json
import re
import ssl
from collections.abc import AsyncIterator, Iterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import psycopg
import pytest
from standardwebhooks import Webhook
from standardwebhooks.webhooks import WebhookVerificationError
from tests.integration.tenancy.audit.test_audit_chain import event
from tests.support.environments.certificates import self_signed
from tests.support.fakes.syslog_server import listening
from tests.support.fakes.webhook_receiver import Receiver, receiving
from tests.support.waiting import until

from windlass.core.db import Database
from windlass.core.ids import new_id
from windlass.core.keyring import Envelope
from windlass.core.outbound.receivers import Receivers
from windlass.core.outbound.signing import new_secret
from windlass.core.outbound.urls import AddressRules
from windlass.rbac.chains import AuditChains
from windlass.rbac.exports import exporter as exports
from windlass.rbac.exports.destinations import SYSLOG, WEBHOOK, Destination
from windlass.rbac.exports.exporter import AuditExporter
from windlass.rbac.exports.senders.port import ExportSender
from windlass.rbac.exports.senders.syslog import SyslogSender
from windlass.rbac.exports.senders.webhooks import WebhookSender
from windlass.rbac.exports.store import DestinationStore
from windlass.rbac.store import AuditStore

ORGANIZATION = "org_a"
_SYSLOG = re.compile(rb"<(\d+)>1 (\S+Z) - windlass - (\S+) - (\{.*\})")


class Exports:
    """Destinations of an organization whose log grows, and the loop of one process."""

    def __init__(self, database: Database, url: str):
        self.database = database
        self.url = url.replace("+psycopg", "")
        self.chains = AuditChains(database)
        self.store = DestinationStore(database, Envelope([bytes(32)]))
        loopback = AddressRules((ip_network("127.0.0.0/8"),), allow_http=True)
        self.receivers = Receivers(loopback)
        senders: dict[str, ExportSender] = {
            WEBHOOK: WebhookSender(self.receivers), SYSLOG: SyslogSender(self.receivers),
        }  # fmt: skip
        self.exporter = AuditExporter(database, AuditStore(database), self.store, senders)
        self._made = 0

    async def grow(self, events: int) -> None:
        numbers = range(self._made, self._made + events)
        self._made += events
        await self.chains.append([event(str(number), ORGANIZATION) for number in numbers])

    async def add(self, kind: str, url: str, *, from_now: bool = False) -> str:
        """The secret of a new destination."""
        secret = new_secret()
        made = Destination(new_id("d_"), ORGANIZATION, "d", kind, url, "", "", "", "", 1)
        await self.store.create(made, secret.encode(), from_now=from_now)
        return secret

    async def deliver(self) -> None:
        """Runs until nothing is due or under way."""
        while await self.exporter.deliver_some():
            pass

    async def retry(self) -> None:
        """Delivers as if the pauses after failures were over, and what a dead process left."""
        with psycopg.connect(self.url) as connection:
            connection.execute(
                "UPDATE rbac_audit_destinations SET not_before_ms = 0, lease_until = NULL"
            )
        await self.deliver()

    async def rows(self) -> list[Any]:
        return list(await self.store.list(ORGANIZATION, limit=10))


@pytest.fixture
async def made(database_url: str) -> AsyncIterator[Exports]:
    database = Database(database_url, pool_size=8)
    exports = Exports(database, database_url)
    yield exports
    await exports.receivers.close()
    await database.close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


def sequences(receiver: Receiver, secret: str) -> list[int]:
    """Of all events that came, whose signatures must be right."""
    found = []
    for headers, body in receiver.requests:
        Webhook(secret).verify(body, headers, json_parse=False)
        found += [json.loads(line)["metadata"]["sequence"] for line in body.splitlines()]
    return found


async def test_a_webhook_gets_the_log_and_what_follows(made: Exports, receiver: Receiver) -> None:
    await made.grow(exports.BATCH + 3)
    secret = await made.add(WEBHOOK, receiver.url)
    await made.deliver()
    await made.grow(2)
    await made.deliver()
    assert sequences(receiver, secret) == [*range(1, exports.BATCH + 6)]
    assert len(receiver.requests) == 3
    headers, body = receiver.requests[0]
    assert headers["content-type"] == "application/x-ndjson"
    with pytest.raises(WebhookVerificationError):
        Webhook(secret).verify(body.replace(b"audit_1", b"audit_2"), headers)
    (row,) = await made.rows()
    assert (row.sequence, row.failures, row.error) == (exports.BATCH + 5, 0, "")
    assert row.delivered_at
    assert secret.encode() not in row.secret


async def test_a_destination_may_begin_now(made: Exports, receiver: Receiver) -> None:
    await made.grow(5)
    secret = await made.add(WEBHOOK, receiver.url, from_now=True)
    await made.deliver()
    assert receiver.requests == []
    await made.grow(1)
    await made.deliver()
    assert sequences(receiver, secret) == [6]


async def test_what_a_receiver_refuses_is_sent_again(made: Exports, receiver: Receiver) -> None:
    await made.grow(8)
    secret = await made.add(WEBHOOK, receiver.url)
    receiver.statuses = [500, 302, 413]
    await made.deliver()
    (row,) = await made.rows()
    assert (row.sequence, row.failures) == (0, 1)
    assert row.error == "the response had status 500"
    assert row.not_before_ms > 0
    # It is not due yet.
    await made.deliver()
    assert len(receiver.requests) == 1
    for _ in range(3):
        await made.retry()
    told = sequences(receiver, secret)
    assert told == [*range(1, 9)] * 4
    assert len({headers["webhook-id"] for headers, _ in receiver.requests}) == 1
    (row,) = await made.rows()
    assert (row.sequence, row.failures, row.error) == (8, 0, "")


async def test_after_failures_less_is_sent_at_once(
    made: Exports, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "BATCH", 4)
    await made.grow(6)
    await made.add(WEBHOOK, receiver.url)
    receiver.statuses = [413, 413]
    await made.deliver()
    for _ in range(3):
        await made.retry()
    assert [body.count(b"\n") for _, body in receiver.requests] == [4, 2, 1, 4, 1]


async def test_one_that_fails_holds_no_other_up(made: Exports, receiver: Receiver) -> None:
    await made.grow(3)
    with receiving() as slow:
        await made.add(WEBHOOK, slow.url)
        slow.released.clear()
        secret = await made.add(WEBHOOK, receiver.url)
        # Nobody listens there.
        await made.add(SYSLOG, "tcp://127.0.0.1:9")
        running = asyncio.create_task(made.deliver())
        await until(lambda: receiver.requests)
        await made.grow(2)
        await until(lambda: sequences(receiver, secret) == [1, 2, 3, 4, 5])
        assert len(slow.requests) == 1
        slow.released.set()
        await running
    errors = {row.kind: row.error for row in await made.rows() if row.failures}
    assert errors.keys() == {SYSLOG}
    assert errors[SYSLOG].startswith("127.0.0.1 could not be connected to")


async def test_a_process_that_dies_after_sending_loses_nothing(
    made: Exports, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    await made.grow(3)
    secret = await made.add(WEBHOOK, receiver.url)

    def die(_: str) -> None:
        raise asyncio.CancelledError

    with monkeypatch.context() as patched:
        patched.setattr(exports, "reach", die)
        await made.deliver()
    assert (await made.rows())[0].sequence == 0
    # Until its lease ends, nobody else sends.
    await made.deliver()
    assert sequences(receiver, secret) == [1, 2, 3]
    await made.grow(1)
    await made.retry()
    assert sequences(receiver, secret) == [1, 2, 3, 1, 2, 3, 4]


def parsed(message: bytes) -> tuple[int, int, str]:
    """Priority, sequence and id of a message."""
    found = _SYSLOG.fullmatch(message)
    assert found, message
    told = json.loads(found[4])
    assert told["metadata"]["uid"].encode() == found[3]
    return int(found[1]), told["metadata"]["sequence"], told["metadata"]["uid"]


async def test_a_syslog_server_gets_every_message(made: Exports) -> None:
    await made.grow(2)
    hostile = {"resource": "a\n<0>1 - forged é\u202e", "user_id": "eve\r\x1b[2J"}
    refused = event("hostile", ORGANIZATION) | {"outcome": "PERMISSION_DENIED"}
    await made.chains.append([refused | hostile])
    async with listening() as server:
        server.breaks = 1
        await made.add(SYSLOG, server.url)
        await made.deliver()
        (row,) = await made.rows()
        assert (row.sequence, row.failures) == (0, 1)
        await made.retry()
        assert [parsed(one)[:2] for one in server.messages] == [(110, 1), (110, 2), (108, 3)]
        assert all(one.isascii() and b"\n" not in one for one in server.messages)
        assert (await made.rows())[0].sequence == 3


async def test_a_syslog_server_is_reached_by_tls(
    made: Exports, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await made.grow(exports.BATCH)
    certificate = self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    async with listening(context) as server:
        await made.add(SYSLOG, server.url)
        # A certificate that nobody vouches for.
        await made.deliver()
        assert "SSLCertVerificationError" in (await made.rows())[0].error
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
        await made.retry()
        await made.retry()
        assert [parsed(one)[1] for one in server.messages] == [*range(1, exports.BATCH + 1)]
        assert (await made.rows())[0].sequence == exports.BATCH
