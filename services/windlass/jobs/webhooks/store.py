"""Every query on webhooks; their secrets are sealed."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from windlass.core.db import Database
from windlass.core.db.paging import newest_first
from windlass.core.errors import FailedPrecondition, NotFound
from windlass.core.keyring import Envelope
from windlass.jobs.domain.webhooks import Webhook
from windlass.jobs.storage.tables import deliveries, webhooks

# Of a project.
MAX_WEBHOOKS = 10


class WebhookStore:
    """Webhooks of every project."""

    def __init__(self, database: Database, envelope: Envelope):
        self._database = database
        self._envelope = envelope

    async def create(self, webhook: Webhook, secret: str) -> None:
        """Stores a new one; raises FailedPrecondition for one too many."""
        sealed = self._envelope.seal(secret.encode(), context=_context(webhook))
        values = {name: getattr(webhook, name) for name in Webhook.__slots__}
        key = sa.func.hashtextextended(f"webhooks {webhook.project_id}", 0)
        count = sa.select(sa.func.count()).where(webhooks.c.project_id == webhook.project_id)
        async with self._database.begin() as connection:
            await connection.execute(sa.select(sa.func.pg_advisory_xact_lock(key)))
            if (await connection.execute(count)).scalar_one() >= MAX_WEBHOOKS:
                raise FailedPrecondition(
                    f"A project has at most {MAX_WEBHOOKS} webhooks. Delete one first.",
                    reason="too_many_webhooks",
                )
            await connection.execute(
                webhooks.insert().values(
                    {**values, "event_types": list(webhook.event_types), "secret": sealed}
                )
            )

    async def list(self, project_id: str, *, after: str, limit: int) -> Sequence[Webhook]:
        """The project's, newest first, beyond `after`; raises NotFound for a foreign one."""
        own = webhooks.c.project_id == project_id
        query = newest_first(
            webhooks.select().where(own), webhooks.c.created_at, webhooks.c.id, after=after, of=own
        )
        async with self._database.autocommit() as connection:
            rows = (await connection.execute(query.limit(limit))).all()
        if after and not rows:
            await self.get(project_id, after)
        return [_webhook(row) for row in rows]

    async def get(self, project_id: str, webhook_id: str) -> tuple[Webhook, str]:
        """A webhook of the project and its secret; raises NotFound."""
        found = await self.find(webhook_id)
        if found is None or found[0].project_id != project_id:
            raise _unknown(webhook_id)
        return found

    async def find(self, webhook_id: str) -> tuple[Webhook, str] | None:
        """A webhook of any project and its secret, for what acts on behalf of none."""
        async with self._database.autocommit() as connection:
            query = webhooks.select().where(webhooks.c.id == webhook_id)
            row = (await connection.execute(query)).first()
        if row is None:
            return None
        webhook = _webhook(row)
        return webhook, self._envelope.open(row.secret, context=_context(webhook)).decode()

    async def delete(self, project_id: str, webhook_id: str) -> None:
        """Removes a webhook and what it was still to hear; raises NotFound."""
        gone = webhooks.delete().where(
            webhooks.c.id == webhook_id, webhooks.c.project_id == project_id
        )
        async with self._database.begin() as connection:
            if (await connection.execute(gone)).rowcount == 0:
                raise _unknown(webhook_id)
            # A job that ends at this moment may leave one, which is removed once it is claimed.
            await connection.execute(
                deliveries.delete().where(deliveries.c.webhook_id == webhook_id)
            )


def _webhook(row: Any) -> Webhook:
    values = {name: getattr(row, name) for name in Webhook.__slots__}
    return Webhook(**{**values, "event_types": tuple(row.event_types)})


def _context(webhook: Webhook) -> str:
    return f"{webhook.project_id}/{webhook.id}"


def _unknown(webhook_id: str) -> NotFound:
    return NotFound(f"No such webhook: {webhook_id[:64]!r}.", param="webhook_endpoint_id")
