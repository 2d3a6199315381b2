"""Reconciles the adapters loaded in one running engine with those desired."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from functools import partial
from http import HTTPStatus
from pathlib import Path

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.models.v1 import models_pb2
from windlass.core import telemetry
from windlass.core.backoff import doubled
from windlass_agent.download import DownloadError, ModelCache
from windlass_agent.engines.adapter_disk import AdapterDisk
from windlass_agent.engines.port import EngineControl, EngineError
from windlass_agent.engines.shelf import Shelf
from windlass_agent.machine.program_output import last_error

log = telemetry.logger("engines")
RETRY_SECONDS = 5.0
MAX_RETRY_SECONDS = 120.0
# An engine with requests on adapters that were unloaded has no place for others until they end.
CROWDED_SECONDS = 1.0
# The engine may drop an adapter on its own.
RESYNC_SECONDS = 30.0
# A request that vLLM holds back may need an unloaded adapter's files once more, and vLLM ends
# without them.
LINGER_SECONDS = 60.0


class AdapterSet:
    """Desired and loaded adapters, and the errors of those that failed to load."""

    def __init__(
        self,
        models: ModelCache,
        shelf: Shelf,
        changed: Callable[[], None],
        *,
        disk: AdapterDisk | None = None,
    ):
        """`disk` bounds what lies in `models` and the shelf; None where others use `models`."""
        self._models = models
        self._shelf = shelf
        self._changed = changed
        self._disk = disk
        self._wanted: dict[str, pb.AdapterSpec] = {}
        # Until then, what an engine has stays.
        self._is_told = False
        # Versions by id; empty where the engine does not say what it was loaded from.
        self._loaded: dict[str, str] = {}
        self._errors: dict[str, str] = {}
        self._failures = 0
        self._is_crowded = False
        # Versions on the shelf that are not needed any more, and since when.
        self._left: dict[str, float] = {}
        self._news = asyncio.Event()

    def want(self, adapters: Iterable[pb.AdapterSpec]) -> None:
        """Replaces the desired adapters."""
        self._wanted, self._is_told = {adapter.id: adapter for adapter in adapters}, True
        self._errors = {one: error for one, error in self._errors.items() if one in self._wanted}
        self._failures = 0
        self._news.set()

    def statuses(self) -> list[pb.LoadedAdapter]:
        """The adapters that are loaded, and those that failed to load."""
        loaded = [
            pb.LoadedAdapter(id=identifier, version_id=version)
            for identifier, version in self._loaded.items()
            # Else it is loaded anew, and requests for it would fail meanwhile.
            if version
        ]
        failed = [
            pb.LoadedAdapter(
                id=identifier, version_id=self._wanted[identifier].version_id, error=error
            )
            for identifier, error in self._errors.items()
        ]
        return loaded + failed

    def _newest_files(self, adapter: pb.AdapterSpec) -> Iterable[models_pb2.FileUrl]:
        return self._wanted.get(adapter.id, adapter).files

    def forget(self) -> None:
        """Forgets all loaded adapters, since the engine has ended."""
        self._loaded, self._errors = {}, {}

    async def keep(self, control: EngineControl) -> None:
        """Loads and unloads adapters until cancelled."""
        while True:
            self._news.clear()
            whole = await self._reconcile(control)
            self._failures = 0 if whole else self._failures + 1
            pause = RESYNC_SECONDS
            if self._is_crowded:
                pause = CROWDED_SECONDS
            elif not whole:
                pause = doubled(RETRY_SECONDS, self._failures - 1, longest=MAX_RETRY_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._news.wait()

    async def _reconcile(self, control: EngineControl) -> bool:
        """Makes one pass; returns True if everything is as it should be."""
        self._is_crowded = False
        try:
            await self.resync(control)
            if not self._is_told:
                return True
            await self._unload(control)
            # Not before: vLLM reads an adapter again for as long as it lists it.
            await self._clear()
            await self._load(control)
        except EngineError as error:
            # Not about one adapter: the engine does not answer.
            log.warning("adapters_not_reconciled", error=str(error))
            return False
        return not self._errors

    async def resync(self, control: EngineControl) -> None:
        """Takes over what the engine lists, and forgets what it does not; raises EngineError."""
        there = await control.loaded_adapters()
        before = self._loaded
        self._loaded = {
            # An agent before this one may have loaded it.
            one: self._loaded.get(one) or self._shelf.version_of(folder)
            for one, folder in sorted(there.items())
        }
        if self._loaded != before:
            self._changed()

    async def _unload(self, control: EngineControl) -> None:
        for identifier, version in tuple(self._loaded.items()):
            wanted = self._wanted.get(identifier)
            if wanted is not None and version == wanted.version_id:
                continue
            # The next version follows it, unless nobody is sent to it or its files take room.
            if wanted is None or not version or self._disk is not None:
                await self._take_out(control, identifier)

    async def _take_out(self, control: EngineControl, identifier: str) -> None:
        """Unloads an adapter, out of the status first, so that no request is sent there."""
        if self._loaded.pop(identifier, None) is not None:
            self._changed()
            await control.unload_adapter(identifier)

    async def _clear(self) -> None:
        """Takes off the shelf what was unloaded a while ago."""
        needed = {*self._loaded.values(), *(one.version_id for one in self._wanted.values())}
        now = asyncio.get_running_loop().time()
        left = self._shelf.versions() - needed
        self._left = {version: self._left.get(version, now) for version in left}
        for version, since in self._left.items():
            if now - since >= LINGER_SECONDS:
                await asyncio.to_thread(self._shelf.drop, version)

    async def _load(self, control: EngineControl) -> None:
        for adapter in tuple(self._wanted.values()):
            if self._news.is_set():
                # What is wanted has changed; begin again.
                return
            if self._loaded.get(adapter.id) == adapter.version_id:
                continue
            try:
                shown = await self._bring(adapter)
            except (DownloadError, OSError) as error:
                self._fail(adapter, error)
                continue
            # An engine knows one of a name: the version before answers until this one is here.
            await self._take_out(control, adapter.id)
            try:
                await control.load_adapter(adapter.id, shown)
            except EngineError as error:
                if error.status == HTTPStatus.SERVICE_UNAVAILABLE:
                    self._is_crowded = True
                else:
                    self._fail(adapter, error)
                continue
            self._errors.pop(adapter.id, None)
            self._loaded[adapter.id] = adapter.version_id
            self._changed()

    async def _bring(self, adapter: pb.AdapterSpec) -> Path:
        """Fetches an adapter; returns the folder in which the engine sees it."""
        if self._disk is not None:
            await self._disk.make_room(adapter, self._wanted.values())
        renewed = partial(self._newest_files, adapter)
        path = await self._models.fetch(adapter.version_id, adapter.files, renewed=renewed)
        return await asyncio.to_thread(self._shelf.put, path)

    def _fail(self, adapter: pb.AdapterSpec, error: Exception) -> None:
        self._errors[adapter.id] = last_error(str(error)) or "The adapter was not loaded."
        log.warning("adapter_load_failed", adapter=adapter.id, error=str(error)[:2000])
        self._changed()
