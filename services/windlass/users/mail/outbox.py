"""Mail that is to be sent: rows beside what they tell of, and leased work that hands them over."""

import json
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.bounds import MAX_DAILY_MAILS
from windlass.core import telemetry
from windlass.core.backoff import doubled
from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.db.leases import Row, claim, held, no_rows, released
from windlass.core.db.wake import Wake
from windlass.core.errors import ResourceExhausted
from windlass.core.ids import new_id
from windlass.core.keyring import Envelope
from windlass.core.outbound.mail import Mail, MailSender, NotMailed
from windlass.users.mail.letters import Letter
from windlass.users.mail.tables import FAILED, SENT, WAITING, mails

log = telemetry.logger("users.mail")
TOPIC = "users.mail"
DAY_SECONDS = 86_400
LEASE_SECONDS = 120.0
RETRY_SECONDS, LONGEST_SECONDS = 30, 3600
# A few hours: who waits for a mail has asked by then.
TRIES = 12
# A row that is over stays to be seen for so long.
SHOWN_SECONDS = 90 * DAY_SECONDS
# Said of an error that no mail server made.
OUR_FAULT = "this server failed to send it; its operator's log says why"


class MailOutbox:
    """Queues mail of organizations; sends nothing where the operator named no server."""

    def __init__(self, envelope: Envelope, wake: Wake, *, enabled: bool):
        self._envelope = envelope
        self._wake = wake
        self.enabled = enabled

    async def put(
        self,
        connection: AsyncConnection,
        organization_id: str,
        recipient: str,
        letter: Letter,
        *,
        about: str,
    ) -> None:
        """Queues a letter in the caller's transaction, after which they call `queued`.

        Raises ResourceExhausted where the organization has sent as much as it may in a day.
        """
        now = now_seconds()
        own = (mails.c.organization_id == organization_id, mails.c.created_at > now - DAY_SECONDS)
        count = sa.select(sa.func.count()).select_from(mails).where(*own)
        if (await connection.execute(count)).scalar_one() >= MAX_DAILY_MAILS:
            raise ResourceExhausted(
                f"An organization may have {MAX_DAILY_MAILS} mails sent in a day.",
                reason="too_many_mails",
            )
        mail_id = new_id("mail_")
        content = json.dumps([letter.subject, letter.text]).encode()
        await connection.execute(
            mails.insert().values(
                id=mail_id,
                organization_id=organization_id,
                about=about,
                recipient=recipient,
                sealed=self._envelope.seal(content, context=mail_id),
                state=WAITING,
                created_at=now,
            )
        )

    def queued(self) -> None:
        """Has what was queued sent at once."""
        self._wake.touch(TOPIC)

    async def sweep(self, database: Database) -> None:
        """Removes what was over long ago."""
        old = mails.c.created_at <= now_seconds() - SHOWN_SECONDS
        async with database.begin() as connection:
            await connection.execute(mails.delete().where(old))

    def opened(self, row: Row) -> Mail:
        """The mail of a row that waits."""
        subject, text = json.loads(self._envelope.open(row.sealed, context=row.id))
        return Mail(row.id, row.recipient, subject, text)


class MailPosting:
    """Hands mail to the server; any number of processes may."""

    def __init__(self, database: Database, outbox: MailOutbox, sender: MailSender):
        self._database = database
        self._outbox = outbox
        self._sender = sender
        self._waiting = mails.c.state == sa.literal_column(f"'{WAITING}'")
        self.has_none = no_rows(database, self._waiting)

    async def once(self) -> bool:
        """Sends what is due; returns True if something was."""
        due = sa.and_(self._waiting, mails.c.not_before <= now_seconds())
        token, rows = await claim(self._database, mails, due, limit=1, seconds=LEASE_SECONDS)
        for row in rows:
            await self._apply(row, token, await self._sent(row))
        return bool(rows)

    async def _sent(self, row: Row) -> dict[str, Any]:
        """Tries to send; returns what the row is from then on."""
        try:
            await self._sender.send(self._outbox.opened(row))
        except NotMailed as error:
            log.info("mail_not_sent", mail=row.id, problem=str(error))
            return _failed(row, str(error), final=error.final)
        except Exception as error:
            log.error("mail_failed", mail=row.id, exc_info=error)
            return _failed(row, OUR_FAULT)
        return {"state": SENT, "sent_at": now_seconds(), "sealed": b"", "error": ""}

    async def _apply(self, row: Row, token: str, values: dict[str, Any]) -> None:
        mine = mails.c.id == row.id, held(mails, token)
        async with self._database.begin() as connection:
            await connection.execute(mails.update().where(*mine).values(**values, **released()))


def _failed(row: Row, problem: str, *, final: bool = False) -> dict[str, Any]:
    failures = row.failures + 1
    values: dict[str, Any] = {"failures": failures, "error": problem}
    if final or failures >= TRIES:
        return values | {"state": FAILED, "sealed": b""}
    pause = doubled(RETRY_SECONDS, row.failures, longest=LONGEST_SECONDS)
    return values | {"not_before": now_seconds() + pause}
