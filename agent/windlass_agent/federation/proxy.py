"""A proxy: holds objects that other clusters run, tells of them, writes on them how they fare."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

import grpc

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.core import telemetry
from windlass.core.backoff import Backoff
from windlass_agent.clock import now_ms
from windlass_agent.control_plane.connection import ControlPlane
from windlass_agent.federation import writing
from windlass_agent.federation.applied import RESOURCES, AppliedObject, Object, trim
from windlass_agent.kube import Conflict, Informer, Invalid, Kube, KubeError, ResourceNotFound
from windlass_agent.retrying import run_forever

BATCH = 50
# So that a burst of changes is one look.
COALESCE_SECONDS = 0.1
# Even when nothing seems to be news: a namespace may have become a project's, and what the
# cluster did not take is tried again.
AGAIN_SECONDS = 5.0

log = telemetry.logger("federation")


class Proxy:
    """The driver of notes, and the teller of what they are about.

    `is_ours` answers whether a namespace is a project's: objects elsewhere are left alone.
    """

    def __init__(
        self,
        kube: Kube,
        control: ControlPlane,
        *,
        is_ours: Callable[[str], bool],
        changed: Callable[[], None],
    ):
        self._kube = kube
        self._control = control
        self._is_ours = is_ours
        self._changed = changed
        # Something is to be written, or to be told.
        self._unwritten = asyncio.Event()
        self._untold = asyncio.Event()
        self._informers = {
            name: Informer(kube, kind.path(), trim=partial(trim, name), changed=self._informed)
            for name, kind in RESOURCES.items()
        }
        self._notes: dict[str, pb.Workload] = {}
        # Of each note the generation that is written, and all that was applied for it.
        self._written: dict[str, int] = {}
        self._applied: dict[str, dict[tuple[str, str], Object]] = {}
        # What was told of each object, by uid.
        self._told: dict[str, AppliedObject] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def apply(self, workload: pb.Workload) -> None:
        """Takes what is to be written."""
        if workload.desired == pb.DESIRED_STATE_DELETED:
            self._notes.pop(workload.id, None)
            self._written.pop(workload.id, None)
            self._applied.pop(workload.id, None)
        else:
            self._notes[workload.id] = workload
        self._unwritten.set()
        self._changed()

    def statuses(self) -> list[pb.WorkloadStatus]:
        """RUNNING for what is written or waits for it, STOPPED for what is no more."""
        return [
            pb.WorkloadStatus(
                workload_id=one.id,
                generation=one.generation,
                phase=pb.PHASE_RUNNING if self._may_be_there(one.note) else pb.PHASE_STOPPED,
            )
            for one in self._notes.values()
        ]

    def knows(self, workload_id: str) -> bool:
        """Returns True if a workload is a note that is to be written here."""
        return workload_id in self._notes

    async def adopt(self) -> None:
        """Begins to look; nothing has to be taken over."""
        loops = [*(one.run for one in self._informers.values()), self._write_all]
        self._tasks = [asyncio.create_task(run_forever("proxy", one)) for one in loops]

    async def close(self) -> None:
        """Leaves objects as they are."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def run(self, session_id: str) -> None:
        """Tells of every object, then of each that is news, until cancelled: for one session."""
        self._told = {}
        backoff = Backoff(longest=30.0)
        while True:
            self._untold.clear()
            try:
                await self._tell()
                backoff.reset()
                await _heard(self._untold)
            except grpc.aio.AioRpcError as error:
                log.info(
                    "federation_report_failed", code=error.code().name, details=error.details()
                )
                await backoff.pause()

    def _informed(self) -> None:
        self._unwritten.set()
        self._untold.set()
        self._changed()

    def _may_be_there(self, note: pb.ObjectNote) -> bool:
        """Returns True if an object is there, or nobody can know."""
        informer = self._informers[note.kind]
        if informer.refused or not informer.synced.is_set():
            return True
        found = informer.items.get(f"{note.namespace}/{note.name}")
        return found is not None and found.uid == note.uid

    def _objects(self) -> Iterable[AppliedObject]:
        return [one for informer in self._informers.values() for one in informer.items.values()]

    async def _tell(self) -> None:
        # Also those in a namespace that is no project's any more: they are to be let go.
        there = {one.uid: one for one in self._objects() if one.held}
        self._told = {uid: one for uid, one in self._told.items() if uid in there}
        news = [one for one in there.values() if not _same(one, self._told.get(one.uid))]
        for start in range(0, len(news), BATCH):
            batch = news[start : start + BATCH]
            await self._control.report_objects(one.message() for one in batch)
            self._told |= {one.uid: one for one in batch}

    async def _write_all(self) -> None:
        while True:
            self._unwritten.clear()
            notes = {one.note.uid: one for one in self._notes.values()}
            for applied in self._objects():
                await self._look_after(applied, notes.get(applied.uid))
            await _heard(self._unwritten)

    async def _look_after(self, applied: AppliedObject, note: pb.Workload | None) -> None:
        """Holds an object that is new, and writes what is news of it."""
        released = note is not None and note.note.released
        wanted = not applied.deleting and not released and self._is_ours(applied.namespace)
        try:
            if wanted and not applied.held:
                await self._kube.apply(applied.path, writing.mark(applied, hold=True))
            if note is not None and self._written.get(note.id) != note.generation:
                await self._write(applied, note)
                self._written[note.id] = note.generation
        except (ResourceNotFound, Conflict):
            # It is another one by now, or gone; the informer will say so.
            return
        except KubeError as error:
            log.warning(
                "object_not_written", name=applied.name, reason=error.reason, message=error.message
            )

    async def _write(self, applied: AppliedObject, note: pb.Workload) -> None:
        """Applies what of a note differs from what was applied last."""
        before = self._applied.setdefault(note.id, {})
        for path, subresource, body in writing.pieces(applied, note.note, now_ms()):
            key = (path, subresource)
            if before.get(key) == body:
                continue
            try:
                await self._kube.apply(path, body, subresource=subresource)
            except Invalid as error:
                # Such as a status after an end that it had before it was placed anew.
                log.warning(
                    "object_refused", name=applied.name, part=subresource, message=error.message
                )
            before[key] = body


async def _heard(news: asyncio.Event) -> None:
    """Returns when there is news, or after a while."""
    with suppress(TimeoutError):
        async with asyncio.timeout(AGAIN_SECONDS):
            await news.wait()
    await asyncio.sleep(COALESCE_SECONDS)


def _same(one: AppliedObject, told: AppliedObject | None) -> bool:
    return told is not None and (one.spec, one.deleting) == (told.spec, told.deleting)
