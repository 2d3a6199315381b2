"""The work of fetches: from the hub into the object store, file by file, by one process at a time.

What is stored stays stored: a process that takes a fetch over, after a crash or a pause, goes on
with the files that are missing. The project's token is asked for anew each time, and kept nowhere.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import replace

import grpc

from windlass import modelfiles
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
from windlass.models.manifest import Manifest, ManifestFile, check_import, refused

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
        """Returns True if no fetch is open, and none has left anything."""
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
        log.warning("fetch_failed", fetch=fetch.id, failures=failures, reason=str(error))
        if failures >= MAX_FAILURES:
            reason = str(error).rstrip(".")
            said = f"Gave up after {failures} failed tries in a row: {reason}."
            await self._fetches.fail(fetch, token, "source_unavailable", said)
            return
        pause = doubled(_FIRST_PAUSE, fetch.failures, longest=_LONGEST_PAUSE)
        said = (
            f"Try {failures} of {MAX_FAILURES} failed: {str(error).rstrip('.')}. "
            f"The next one follows in {pause:.0f} s."
        )
        postponed = replace(fetch, failures=failures, error_message=said)
        await self._fetches.postpone(postponed, token, pause)

    async def _bring(self, way: "_Way", token: str) -> None:
        secret = await self._secret(way.fetch)
        repository = way.fetch.repository
        # The commit that was found first, so that no model is made of two.
        revision = way.fetch.commit or way.fetch.revision
        snapshot = await self._hub.snapshot(repository, revision, secret)
        _check(snapshot)
        way.begin(snapshot)
        await self._tell(way, token)
        for file in snapshot.files:
            if not way.has(file):
                content = self._hub.read(repository, snapshot.commit, file.path, secret)
                stored = await self._objects.put(
                    way.fetch.object_prefix + file.path,
                    way.counted(content),
                    bytes=file.size,
                    sha256=bytes.fromhex(file.sha256) if file.sha256 else None,
                )
                way.add(ManifestFile(file.path, stored.bytes, stored.sha256))
                await self._tell(way, token)
        await self._complete(way.fetch, token)

    async def _complete(self, fetch: Fetch, token: str) -> None:
        check_import(fetch.manifest)
        found = await self._artifacts.inspect(fetch.object_prefix, fetch.manifest)
        version = Version(
            id=fetch.version_id,
            organization_id=fetch.organization_id,
            project_id="" if fetch.is_global else fetch.project_id,
            name=fetch.name,
            kind=Kind.BASE,
            manifest=fetch.manifest,
            object_prefix=fetch.object_prefix,
            task=found.task,
            model_type=found.model_type,
            footprint=found.footprint,
            quantization=found.quantization,
            formats=found.formats,
            preset=found.preset,
            created_at=now_seconds(),
        )
        if not await self._fetches.complete(fetch, token, version):
            raise _Lost

    async def _secret(self, fetch: Fetch) -> str:
        """The project's token for the hub; empty for none. Raises HubAway, HubRefuses."""
        request = users_pb2.RevealSecretRequest(
            project_id=fetch.project_id, name=CREDENTIAL, used_by=fetch.id
        )
        try:
            said = bytes((await self._users.RevealSecret(request)).value).strip()
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                return ""
            raise HubAway(f"the project's secret cannot be read ({error.code().name})") from error
        # It goes into a header.
        if not _TOKEN.fullmatch(said):
            raise HubRefuses(
                "bad_secret", f"The project's secret {CREDENTIAL!r} is not a valid token."
            )
        return said.decode()


class _Way:
    """Progress of a fetch."""

    def __init__(self, fetch: Fetch):
        self.fetch = fetch
        # What the quota of fetched bytes leaves; None for no bound.
        self.room: int | None = None

    def begin(self, snapshot: Snapshot) -> None:
        """Notes what there is to bring, and what of it is there."""
        self.fetch = replace(
            self.fetch,
            commit=snapshot.commit,
            bytes_total=snapshot.size,
            bytes_done=self.fetch.manifest.size,
            error_message="",
        )

    def has(self, file: HubFile) -> bool:
        """Returns True if it is stored already."""
        return any(one.path == file.path for one in self.fetch.manifest.files)

    def add(self, file: ManifestFile) -> None:
        """Notes a file that is stored."""
        manifest = Manifest.of([*self.fetch.manifest.files, file])
        self.fetch = replace(self.fetch, manifest=manifest, bytes_done=manifest.size, failures=0)

    async def counted(self, content: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The same bytes, counted; raises PermissionDenied where the quota ends."""
        async for chunk in content:
            size = len(chunk)
            self.fetch = replace(
                self.fetch,
                bytes_done=self.fetch.bytes_done + size,
                bytes_fetched=self.fetch.bytes_fetched + size,
            )
            if self.room is not None:
                self.room -= size
                if self.room < 0:
                    raise PermissionDenied(
                        f"The quota of {WORDS[Quota.FETCHED_BYTES]} is used up.", reason=REASON
                    )
            yield chunk


def _check(snapshot: Snapshot) -> None:
    """Raises InvalidArgument for what is not worth beginning."""
    sizes = {file.path: file.size for file in snapshot.files}
    with refused():
        modelfiles.check_paths([file.path for file in snapshot.files])
        modelfiles.check_sizes(sizes)
        modelfiles.check_model(sizes)
