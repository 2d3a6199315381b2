"""Deliveries to webhooks: leased rows, sent at least once, tried again for a bounded time."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from urllib.parse import urlsplit

import grpc
import sqlalchemy as sa

from windlass.api.users.v1 import users_pb2, users_pb2_grpc
from windlass.core import telemetry
from windlass.core.backoff import doubled
from windlass.core.clock import now_ms, now_seconds
from windlass.core.db import Database
from windlass.core.db.leases import Row, claim, held, no_rows, released, run_loop
from windlass.core.db.wake import Wake
from windlass.core.errors import NotFound, from_rpc
from windlass.core.killpoints import reach
from windlass.core.outbound.receivers import SECONDS, Receivers, Unreachable
from windlass.core.outbound.signing import signed
from windlass.jobs.domain.job import Change, Level, NewEvent
from windlass.jobs.domain.webhooks import end_of
from windlass.jobs.storage.due_deliveries import due_deliveries
from windlass.jobs.storage.store import WAKE_WEBHOOKS, JobStore
from windlass.jobs.storage.tables import deliveries
from windlass.jobs.webhooks.store import WebhookStore
from windlass.metrics.jobs import WEBHOOK_DELIVERIES

log = telemetry.logger("jobs")
# At once, of this process; of each project, so that no few of them fill all; and of each webhook,
# wherever they are sent from.
LANES = 128
PROJECT_LANES = 8
ABREAST = 2
LEASE_SECONDS = 2 * SECONDS
RETRY_DELAY_MS = 5_000
MAX_RETRY_DELAY_MS = 3_600_000
# Said of an error that no receiver made.
OUR_FAULT = "this server failed to send it; its operator's log says why"


class Deliveries:
    """Tells webhooks of ended jobs; any number of processes may."""

    def __init__(
        self,
        database: Database,
        store: JobStore,
        webhooks: WebhookStore,
        receivers: Receivers,
        users: users_pb2_grpc.UsersInternalServiceAsyncStub,
        *,
        retry_seconds: int,
    ):
        self._database = database
        self._store = store
        self._webhooks = webhooks
        self._receivers = receivers
        self._users = users
        self._retry_seconds = retry_seconds
        # The project of each.
        self._sending: dict[asyncio.Task[None], str] = {}

    async def run(self, wake: Wake) -> None:
        """Delivers until cancelled."""
        resting = no_rows(self._database, deliveries.c.id > 0)
        try:
            await run_loop(
                "jobs webhooks",
                wake.listen(WAKE_WEBHOOKS),
                self.deliver_some,
                poll_seconds=1.0,
                resting=resting,
            )
        finally:
            for task in self._sending:
                task.cancel()
            if self._sending:
                await asyncio.wait(self._sending)

    async def deliver_some(self) -> bool:
        """Begins what is due and has a lane; whether anything is under way."""
        rows: Sequence[Row] = ()
        if free := LANES - len(self._sending):
            token, rows = await claim(
                self._database,
                deliveries,
                sa.and_(_is_due(), self._has_lane()),
                limit=free,
                seconds=LEASE_SECONDS,
                # What has failed before waits for what has not.
                order=deliveries.c.tries,
            )
            await self._begin(rows, token)
        if self._sending and not rows:
            # A lane that is free again is filled at once, whatever the others wait for.
            await asyncio.wait(self._sending, timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
        return bool(rows or self._sending)

    def _has_lane(self) -> sa.ColumnElement[bool]:
        """The rows of projects that have a lane left."""
        lanes = Counter(self._sending.values())
        full = [project for project, count in lanes.items() if count >= PROJECT_LANES]
        return deliveries.c.project_id.not_in(full)

    async def _begin(self, rows: Sequence[Row], token: str) -> None:
        """Begins rows as far as their projects have lanes, and gives the others back."""
        lanes, left = Counter(self._sending.values()), []
        for row in rows:
            if lanes[row.project_id] >= PROJECT_LANES:
                left.append(row.id)
                continue
            lanes[row.project_id] += 1
            task = asyncio.create_task(self._deliver(row, token))
            self._sending[task] = row.project_id
            task.add_done_callback(self._sending.pop)
        if left:
            mine = deliveries.c.id.in_(left), held(deliveries, token)
            async with self._database.begin() as connection:
                await connection.execute(deliveries.update().where(*mine).values(released()))

    async def _deliver(self, row: Row, token: str) -> None:
        try:
            try:
                await self._attempt(row, token)
            except Exception as error:
                log.error("webhook_failed", job=row.job_id, webhook=row.webhook_id, exc_info=error)
                await self._failed(row, token, "", OUR_FAULT)
        except Exception as error:
            # Its lease ends, and somebody tries again.
            log.error("webhook_not_counted", webhook=row.webhook_id, exc_info=error)

    async def _attempt(self, row: Row, token: str) -> None:
        found = await self._webhooks.find(row.webhook_id)
        if found is None or not await self._is_live(row.project_id):
            await self._forget(row, token)
            return
        webhook, secret = found
        event = end_of(row.job_id, row.event_type, row.ended_at_ms)
        body = event.body
        try:
            headers = signed(event.id, body, secret, now_seconds())
            status = await self._receivers.post(row.project_id, webhook.url, body, headers)
            problem = "" if 200 <= status < 300 else f"the response had status {status}"
        except Unreachable as error:
            problem = str(error)
        reach("jobs.webhook_sent")
        if problem:
            host = urlsplit(webhook.url).hostname
            await self._failed(row, token, f" at {host}", problem)
            return
        WEBHOOK_DELIVERIES.labels("delivered").inc()
        await self._forget(row, token)

    async def _is_live(self, project_id: str) -> bool:
        request = users_pb2.LookupProjectRequest(project_id=project_id)
        try:
            return not (await self._users.LookupProject(request)).archived_at
        except grpc.aio.AioRpcError as error:
            failure = from_rpc(error)
            if isinstance(failure, NotFound):
                return False
            raise failure from error

    async def _forget(self, row: Row, token: str) -> None:
        async with self._database.begin() as connection:
            await connection.execute(deliveries.delete().where(*_mine(row, token)))

    async def _failed(self, row: Row, token: str, where: str, problem: str) -> None:
        """Tries again later or gives up; the job's events say the first failure and the last."""
        log.info("webhook_undelivered", job=row.job_id, webhook=row.webhook_id, problem=problem)
        next_ms = now_ms() + doubled(RETRY_DELAY_MS, row.tries, longest=MAX_RETRY_DELAY_MS)
        is_last = next_ms > row.ended_at_ms + self._retry_seconds * 1000
        WEBHOOK_DELIVERIES.labels("given_up" if is_last else "failed").inc()
        statement = (
            deliveries.delete()
            if is_last
            else deliveries.update().values(
                not_before_ms=next_ms, tries=deliveries.c.tries + 1, **released()
            )
        )
        statement = statement.where(*_mine(row, token))
        if row.tries and not is_last:
            async with self._database.begin() as connection:
                await connection.execute(statement)
            return
        what = f"webhook {row.webhook_id}{where}"
        said = (
            f"The {what} could not be delivered: {problem}. It is not tried again."
            if is_last
            else f"The {what} could not be delivered yet: {problem}. It is tried again."
        )
        async with self._store.locked(row.job_id) as locked:
            if (await locked.connection.execute(statement)).rowcount:
                event = NewEvent(message=said, level=Level.WARN, at_ms=now_ms())
                await locked.apply(Change(job=locked.job, events=(event,)))


def _mine(row: Row, token: str) -> tuple[sa.ColumnElement[bool], ...]:
    return deliveries.c.id == row.id, held(deliveries, token)


def _is_due() -> sa.ColumnElement[bool]:
    """The oldest due rows of each webhook, those under way counted: a slow one gets no more."""
    due = due_deliveries(ABREAST).subquery()
    return deliveries.c.id.in_(sa.select(due.c.id))
