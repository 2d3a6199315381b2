"""Mail that is to be sent: rows beside what they tell of, and leased work that hands them over."""

import json
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.bounds import MAX_DAILY_MAILS, MAX_DAILY_MAILS_TO_ONE
from windlass.core import telemetry
from windlass.core.backoff import doubled
from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.db.leases import Row, claim, held, no_rows, released
from windlass.core.db.wake import Wake
from windlass.core.errors import AppError, InvalidArgument, ResourceExhausted
from windlass.core.ids import new_id
from windlass.core.keyring import Envelope
from windlass.core.outbound.mail import Mail, MailSender, NotMailed
from windlass.users.mail.letters import Letter, is_mailable
from windlass.users.mail.tables import FAILED, SENT, WAITING, mails
from windlass.users.mail.withdrawal import withdrawn

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
        kind: str,
        about: str,
        expires_at: int,
        must: bool = False,
    ) -> None:
        """Queues a letter in the caller's transaction, after which they call `queued`.

        What cannot be sent, to such an address or so often, is a row that says so. Where it `must`
        be sent, raises InvalidArgument and ResourceExhausted instead.
        """
        problem = await self._problem(connection, organization_id, recipient, kind)
        if must and problem is not None:
            raise problem
        mail_id = new_id("mail_")
        content = json.dumps([letter.subject, letter.text]).encode()
        await connection.execute(
            mails.insert().values(
                id=mail_id,
                organization_id=organization_id,
                kind=kind,
                about=about,
                recipient=recipient,
                sealed=b"" if problem else self._envelope.seal(content, context=mail_id),
                state=FAILED if problem else WAITING,
                error=problem.message if problem else "",
                created_at=now_seconds(),
                expires_at=expires_at,
            )
        )

    async def _problem(
        self, connection: AsyncConnection, organization_id: str, recipient: str, kind: str
    ) -> AppError | None:
        if not is_mailable(recipient):
            return InvalidArgument("email must be an address that mail is sent to.", param="email")
        today = (
            mails.c.organization_id == organization_id,
            mails.c.kind == kind,
            # What the server refused was tried; what this bound refused was not.
            sa.or_(mails.c.state != FAILED, mails.c.failures > 0),
            mails.c.created_at > now_seconds() - DAY_SECONDS,
        )
        theirs = sa.func.count().filter(mails.c.recipient == recipient)
        count = sa.select(sa.func.count(), theirs).select_from(mails).where(*today)
        everybodys, one = (await connection.execute(count)).one()
        if everybodys < MAX_DAILY_MAILS and one < MAX_DAILY_MAILS_TO_ONE:
            return None
        return ResourceExhausted(
            f"An organization may have {MAX_DAILY_MAILS} mails sent in a day, and "
            f"{MAX_DAILY_MAILS_TO_ONE} of them to one address.",
            reason="too_many_mails",
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
        return Mail(row.id, row.recipient, subject, text, row.created_at)


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
        if row.expires_at <= now_seconds():
            return withdrawn()
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
        # Withdrawn meanwhile, it stays so.
        mine = mails.c.id == row.id, mails.c.state == WAITING, held(mails, token)
        async with self._database.begin() as connection:
            await connection.execute(mails.update().where(*mine).values(**values, **released()))


def _failed(row: Row, problem: str, *, final: bool = False) -> dict[str, Any]:
    failures = row.failures + 1
    values: dict[str, Any] = {"failures": failures, "error": problem}
    if final or failures >= TRIES:
        return values | {"state": FAILED, "sealed": b""}
    pause = doubled(RETRY_SECONDS, row.failures, longest=LONGEST_SECONDS)
    return values | {"not_before": now_seconds() + pause}
