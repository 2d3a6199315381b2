"""Quota of a project's concurrent event streams: those beyond it are refused."""

import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from windlass.core.db import Database
from windlass.core.quotas import Quota, QuotaBounds, Quotas

# For so long the bounds of a project are remembered.
REMEMBER_SECONDS = 5.0
REMEMBERED = 10_000


class EventStreams:
    """The open streams of this process, by organization and project."""

    def __init__(self, database: Database, quotas: Quotas):
        self._database = database
        self._quotas = quotas
        self._open: Counter[str] = Counter()
        self._bounds: dict[str, tuple[float, QuotaBounds]] = {}

    @asynccontextmanager
    async def one(self, organization_id: str, project_id: str) -> AsyncIterator[None]:
        """Counts a stream until the end of the block; raises ResourceExhausted."""
        bounds = await self._of(organization_id, project_id)
        # Nothing is awaited between the question and the count.
        bounds.require(
            organization=self._open[organization_id] + 1, project=self._open[project_id] + 1
        )
        self._open.update((organization_id, project_id))
        try:
            yield
        finally:
            self._open.subtract((organization_id, project_id))
            self._open = +self._open

    async def _of(self, organization_id: str, project_id: str) -> QuotaBounds:
        now = time.monotonic()
        at, bounds = self._bounds.get(project_id, (0.0, None))
        if bounds is None or now - at > REMEMBER_SECONDS:
            if len(self._bounds) >= REMEMBERED:
                self._bounds.clear()
            async with self._database.autocommit() as connection:
                scope = (organization_id, project_id)
                bounds = await self._quotas.of(connection, Quota.EVENT_STREAMS, *scope)
            self._bounds[project_id] = now, bounds
        return bounds
