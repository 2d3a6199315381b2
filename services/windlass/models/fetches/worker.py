"""The work of fetches: from the hub into the object store, file by file, by one process at a time.

What is stored stays stored: whoever takes a fetch over, after a crash or a pause, goes on with
the files that are missing. The project's token is asked for anew each time, and kept nowhere.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import replace

import grpc

from windlass.api.users.v1 import users_pb2
from windlass.api.users.v1.users_pb2_grpc import UsersInternalServiceAsyncStub
from windlass.core import telemetry
from windlass.core.backoff import doubled
from windlass.core.clock import now_seconds
from windlass.core.db.wake import Wake
from windlass.core.errors import AlreadyExists, InvalidArgument, PermissionDenied
from windlass.core.objects import ObjectStore, ObjectStoreError
from windlass.core.quotas import REASON, WORDS, Quota
from windlass.models.artifacts import Artifacts
from windlass.models.domain import Kind, Version
from windlass.models.fetches.hub import Hub, HubAway, HubFile, HubRefuses, Snapshot
from windlass.models.fetches.store import LEASE_SECONDS, OPEN, Fetch, FetchState, FetchStore
from windlass.models.manifest import (
    MAX_FILE_BYTES,
    MAX_TOTAL_BYTES,
    Manifest,
    ManifestFile,
    check_import,
    safe_path,
)

# The name of the project's secret.
CREDENTIAL = "huggingface"
# With pauses that double up to ten minutes, a hub may be away for more than half an hour.
MAX_FAILURES = 12
_TOKEN = re.compile(rb"[!-~]{1,1024}")
_FIRST_PAUSE, _LONGEST_PAUSE = 2.0, 600.0
_TELL_SECONDS = LEASE_SECONDS / 6

log = telemetry.logger("models.fetch")


class _Lost(Exception):
    """Another process has the fetch, or it was cancelled."""


class FetchWorker:
    """Takes fetches up, one after the other."""

    def __init__(
        self,
        fetches: FetchStore,
        hub: Hub,
        objects: ObjectStore,
        artifacts: Artifacts,
        users: UsersInternalServiceAsyncStub,
        wake: Wake,
    ):
        self._fetches = fetches
        self._hub = hub
        self._objects = objects
        self._artifacts = artifacts
        self._users = users
        self._wake = wake

    async def has_nothing(self) -> bool:
        """Returns whether no fetch is open, and none has left anything."""
        return await self._fetches.has_none()

    async def once(self) -> bool:
        """Brings one as far as it goes, or clears what one left; false when there is none."""
        token, fetch = await self._fetches.claim()
        if fetch is None:
            return False
        if fetch.state in OPEN:
            await self._attempt(fetch, token)
            self._wake.touch("models")
        else:
            await self._objects.delete_prefix(fetch.object_prefix)
            await self._fetches.cleared(fetch, token)
        return True

    async def _attempt(self, fetch: Fetch, token: str) -> None:
        way = _Way(replace(fetch, state=FetchState.RUNNING))
        try:
            await self._within_lease(way, token)
        except _Lost:
            log.info("fetch_released", fetch=fetch.id)
            await self._fetches.let_go(fetch, token)
        except HubRefuses as error:
            await self._fetches.fail(way.fetch, token, error.code, error.message)
        except (InvalidArgument, AlreadyExists, PermissionDenied) as error:
            await self._fetches.fail(way.fetch, token, error.reason, error.message)
        except (HubAway, ObjectStoreError) as error:
            await self._postpone(way.fetch, token, error)

    async def _within_lease(self, way: "_Way", token: str) -> None:
        """Works while the lease is ours, telling how far it is."""
        work = asyncio.create_task(self._bring(way, token))
        try:
            while not work.done():
                await self._tell(way, token)
                await asyncio.wait({work}, timeout=_TELL_SECONDS)
            work.result()
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    async def _tell(self, way: "_Way", token: str) -> None:
        if not await self._fetches.advance(way.fetch, token):
            raise _Lost
        way.room = await self._fetches.room(way.fetch)

    async def _postpone(self, fetch: Fetch, token: str, error: Exception) -> None:
        failures = fetch.failures + 1
