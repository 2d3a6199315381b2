"""Prefetches on a machine: files of models that are brought before an engine needs them."""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.models.v1 import models_pb2
from windlass.core import telemetry
from windlass.core.ids import is_identifier
from windlass_agent.download import DownloadError, ModelCache, prefetched, versions_of
from windlass_agent.machine.program_output import one_line

# Of the disk, what no prefetch takes.
SPARED_SHARE = 0.05
MESSAGE_LENGTH = 2000
log = telemetry.logger("prefetches")


class _Brought:
    """One prefetch: what is wanted, and how far it is."""

    def __init__(self, workload: pb.Workload):
        self.workload = workload
        self.task: asyncio.Task[None] | None = None
        self.phase: pb.Phase.ValueType = pb.PHASE_PENDING
        self.reason, self.message = "WaitingForTurn", "Waiting for other prefetches"

    def status(self) -> pb.WorkloadStatus:
        return pb.WorkloadStatus(
            workload_id=self.workload.id,
            generation=self.workload.generation,
            phase=self.phase,
            reason=self.reason,
            message=self.message,
        )


class PrefetchDriver:
    """A WorkloadDriver. One model is brought at a time; it takes no room from what is in use."""

    def __init__(self, models: ModelCache, changed: Callable[[], None]):
        self._models = models
        self._changed = changed
        self._turn = asyncio.Lock()
        self._brought: dict[str, _Brought] = {}

    async def apply(self, workload: pb.Workload) -> None:
        """Begins what is wanted, or ends it; raises ValueError for an invalid id."""
        if not is_identifier(workload.id):
            raise ValueError(f"{workload.id!r} is not an identifier")
        known = self._brought.get(workload.id)
        if workload.desired != pb.DESIRED_STATE_RUNNING:
            if known is not None and workload.generation >= known.workload.generation:
                await self._end(known)
                del self._brought[workload.id]
        elif known is None:
            known = self._brought[workload.id] = _Brought(workload)
            known.task = asyncio.create_task(self._bring(known))
        elif workload.generation > known.workload.generation:
            known.workload = workload
            if known.task is not None and known.task.done():
                known.task = asyncio.create_task(self._bring(known))
        self._changed()

    def statuses(self) -> list[pb.WorkloadStatus]:
        """The status of every prefetch."""
        return [one.status() for one in self._brought.values()]

    async def adopt(self) -> None:
        """Takes nothing over: what is there will be found."""

    async def close(self) -> None:
        """Ends what is under way."""
        for one in self._brought.values():
            await self._end(one)

    async def _bring(self, one: _Brought) -> None:
        while True:
            self._become(one, pb.PHASE_PENDING, "WaitingForTurn", "Waiting for other prefetches")
            # Given up between tries: one that cannot be brought keeps no other waiting.
            async with self._turn:
                self._become(one, pb.PHASE_STARTING, "Downloading")
                workload = one.workload
                try:
                    await self._fetch(one)
                except DownloadError as error:
                    message = one_line(str(error), characters=MESSAGE_LENGTH)
                else:
                    if one.workload is workload:
                        self._become(one, pb.PHASE_SUCCEEDED)
                        return
            if one.workload is workload:
                log.warning("prefetch_failed", prefetch=workload.id, message=message)
                self._become(one, pb.PHASE_FAILED, "DownloadFailed", message)
                return

    async def _fetch(self, one: _Brought) -> None:
        """Brings the files by the newest URLs; raises DownloadError."""
        wanted = versions_of(prefetched(one.workload.prefetch))
        with self._models.using(*wanted):
            for version_id, files in wanted.items():
                await self._models.fetch(
                    version_id,
                    files,
                    renewed=partial(_newest, one, version_id),
                    spared=SPARED_SHARE,
                )

    @staticmethod
    async def _end(one: _Brought) -> None:
        if one.task is not None:
            one.task.cancel()
            await asyncio.gather(one.task, return_exceptions=True)

    def _become(
        self, one: _Brought, phase: "pb.Phase.ValueType", reason: str = "", message: str = ""
    ) -> None:
        one.phase, one.reason, one.message = phase, reason, message
        self._changed()


def _newest(one: _Brought, version_id: str) -> Iterable[models_pb2.FileUrl]:
    return versions_of(prefetched(one.workload.prefetch)).get(version_id, ())
