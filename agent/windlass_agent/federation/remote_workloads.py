"""A worker: runs what was applied to other clusters, and says how it fares.

The cluster's own controllers run it, retries and all; here its object is made, watched, and
removed when nobody wants it any more.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.core import telemetry
from windlass.kubernetes.labels import CLUSTER, GUEST, KIND
from windlass_agent.clock import now_ms
from windlass_agent.federation import remote_status
from windlass_agent.federation.applied import RESOURCES
from windlass_agent.federation.log_tails import Tails
from windlass_agent.federation.remote_status import Guest, Happening, RemotePod
from windlass_agent.federation.rendering import name_of, path_of, render
from windlass_agent.kube import Conflict, Informer, Invalid, Kube, KubeError, ResourceNotFound
from windlass_agent.kube.errors import Unrenderable
from windlass_agent.kube.resources import EVENTS, PODS
from windlass_agent.kueue import Workload
from windlass_agent.retrying import run_forever

PREFIX = "fed-"
COALESCE_SECONDS = 0.05
# What the cluster did not take is tried again after this long.
AGAIN_SECONDS = 2.0
KILL_SECONDS = 1

log = telemetry.logger("remote_workloads")


class GuestDriver:
    """The driver of guests. `admission` finds Kueue's Workload of an object by its uid."""

    def __init__(
        self,
        kube: Kube,
        *,
        cluster_id: str,
        admission: Callable[[str], Workload | None],
        changed: Callable[[], None],
    ):
        def informer(path: str, trim: Callable[[dict[str, Any]], Any], **selectors: str) -> Any:
            return Informer(kube, path, trim=trim, changed=self._informed, **selectors)

        ours = {"label_selector": f"{CLUSTER}={cluster_id},{KIND}={GUEST}"}
        self._kube = kube
        self._admission = admission
        self._changed = changed
        self._news = asyncio.Event()
        self._objects: list[Informer[Guest]] = [
            informer(kind.path(), partial(remote_status.trim_guest, name), **ours)
            for name, kind in RESOURCES.items()
        ]
        self._pods: Informer[RemotePod] = informer(PODS.path(), remote_status.trim_pod, **ours)
        self._events: Informer[Happening] = informer(
            EVENTS.path(), partial(remote_status.trim_event, PREFIX)
        )
        self._tails = Tails(kube, self._pods, changed)
        self._wanted: dict[str, pb.Workload] = {}
        # Names of objects that were made and are not shown yet, by workload.
        self._made: dict[str, str] = {}
        # Why a generation of a workload cannot be, and why it is not there yet.
        self._failed: dict[str, pb.WorkloadStatus] = {}
        self._trouble: dict[str, pb.Observation] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def apply(self, workload: pb.Workload) -> None:
        """Takes what a guest should be."""
        if workload.HasField("guest"):
            self._wanted[workload.id] = workload
        elif known := self._wanted.get(workload.id):
            known.desired, known.generation = workload.desired, workload.generation
        elif self.knows(workload.id):
            # Of an earlier life: it can only be ended.
            self._wanted[workload.id] = workload
        self._news.set()

    def knows(self, workload_id: str) -> bool:
        """Returns True if a workload is a guest of this cluster."""
        return workload_id in self._wanted or bool(self._of(workload_id))

    def statuses(self) -> list[pb.WorkloadStatus]:
        """The status of every guest."""
        told = (self._status(workload) for workload in self._wanted.values())
        return [*(one for one in told if one is not None), *self._adopted()]

    async def adopt(self) -> None:
        """Begins to watch what there is."""
        informers: list[Informer[Any]] = [*self._objects, self._pods, self._events]
        loops = [*(one.run for one in informers), self._settle_all, self._tail]
        self._tasks = [asyncio.create_task(run_forever("remote_workloads", one)) for one in loops]
        while not self._settled:
            await self._news.wait()
            self._news.clear()
        self._news.set()

    async def close(self) -> None:
        """Leaves everything to the next life."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def _settled(self) -> bool:
        return all(one.synced.is_set() or one.refused for one in self._objects)

    def _informed(self) -> None:
        self._news.set()
        self._changed()

    def _all(self) -> list[Guest]:
        return [one for informer in self._objects for one in informer.items.values()]

    def _of(self, workload_id: str) -> list[Guest]:
        return [one for one in self._all() if one.workload == workload_id]

    def _adopted(self) -> Iterable[pb.WorkloadStatus]:
        for one in self._all():
            if one.workload not in self._wanted:
                yield pb.WorkloadStatus(
                    workload_id=one.workload, generation=one.generation, phase=one.phase
                )

    def _status(self, workload: pb.Workload) -> pb.WorkloadStatus | None:
        there = self._of(workload.id)
        wanted = workload.desired == pb.DESIRED_STATE_RUNNING
        for one in there:
            if workload.HasField("guest") and one.name == name_of(workload):
                about = [item for item in self._events.items.values() if _is_about(item, one)]
                tail = self._tails.of(workload.id)
                found = remote_status.status_of(
                    one, workload, about, self._admission(one.uid), tail
                )
                # Its end comes after its log, so that who waits for the end finds it.
                return remote_status.still_running(found) if self._is_unread(one) else found
        if failed := self._failed.get(workload.id):
            return failed
        phase, reason = pb.PHASE_STOPPED, "NothingThere"
        if there:
            phase, reason = pb.PHASE_PENDING if wanted else pb.PHASE_STOPPING, "AttemptBefore"
        elif workload.desired == pb.DESIRED_STATE_DELETED:
            return None
        elif wanted:
            phase, reason = pb.PHASE_PENDING, "Launching"
        trouble = self._trouble.get(workload.id)
        return pb.WorkloadStatus(
            workload_id=workload.id,
            generation=workload.generation,
            phase=phase,
            reason=reason,
            observations=[trouble] if trouble is not None and wanted else [],
        )

    async def _tail(self) -> None:
        await self._tails.run(self._all)

    def _is_unread(self, guest: Guest) -> bool:
        return guest.ended and not self._tails.is_last(guest)

    async def _settle_all(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_SECONDS):
                    await self._news.wait()
            await asyncio.sleep(COALESCE_SECONDS)
            self._news.clear()
            if not self._settled:
                continue
            for workload in list(self._wanted.values()):
                try:
                    await self._settle(workload)
                except KubeError as error:
                    log.warning(
                        "remote_workload_not_applied", workload=workload.id, message=error.message
                    )

    async def _settle(self, workload: pb.Workload) -> None:
        """The next step towards what a guest should be."""
        there = self._of(workload.id)
        present = name_of(workload) if workload.HasField("guest") else ""
        for one in there:
            self._made.pop(workload.id, None)
            older = present and one.name != present
            if older or workload.desired == pb.DESIRED_STATE_DELETED:
                await self._remove(one, at_once=True)
            elif workload.desired == pb.DESIRED_STATE_STOPPED and not one.ended:
                await self._remove(one, at_once=False)
        if workload.desired == pb.DESIRED_STATE_RUNNING and not there:
            await self._launch(workload, present)
        elif workload.desired == pb.DESIRED_STATE_DELETED and not there:
            await self._forget(workload)

    async def _launch(self, workload: pb.Workload, name: str) -> None:
        if self._made.get(workload.id) == name:
            return
        failed = self._failed.get(workload.id)
        if failed is not None and failed.generation == workload.generation:
            return
        self._failed.pop(workload.id, None)
        try:
            with suppress(Conflict):
                await self._kube.apply(path_of(workload), render(workload), force=False)
            self._made[workload.id] = name
            self._trouble.pop(workload.id, None)
        except Unrenderable as error:
            self._fail(workload, error.reason, error.message)
        except Invalid as error:
            self._fail(
                workload, "InvalidObject", f"The cluster refused the object: {error.message}"
            )
        except KubeError as error:
            # It may pass.
            self._hinder(workload, error)

    def _fail(self, workload: pb.Workload, reason: str, message: str) -> None:
        self._failed[workload.id] = pb.WorkloadStatus(
            workload_id=workload.id,
            generation=workload.generation,
            phase=pb.PHASE_FAILED,
            reason=reason,
            message=message[:1000],
        )
        self._changed()

    def _hinder(self, workload: pb.Workload, error: KubeError) -> None:
        key = f"{workload.generation}/{error.reason or 'Unavailable'}"
        known = self._trouble.get(workload.id)
        if known is None or known.key != key:
            self._trouble[workload.id] = pb.Observation(
                key=key,
                at_ms=now_ms(),
                warning=True,
                message=f"The object is not created in this cluster yet: {error.message[:800]}",
            )
            self._changed()

    async def _forget(self, workload: pb.Workload) -> None:
        if self._made.pop(workload.id, None) is not None:
            # Made, and perhaps not shown to us yet.
            with suppress(ResourceNotFound, Conflict):
                await self._kube.delete(path_of(workload), propagation="Foreground")
        self._failed.pop(workload.id, None)
        self._trouble.pop(workload.id, None)
        if self._wanted.get(workload.id) is workload:
            del self._wanted[workload.id]
        self._changed()

    async def _remove(self, guest: Guest, *, at_once: bool) -> None:
        path = RESOURCES[guest.kind].path(guest.namespace, guest.name)
        with suppress(ResourceNotFound, Conflict):
            if not guest.deleting:
                await self._kube.delete(path, propagation="Foreground", uid=guest.uid)
        for pod in self._pods.items.values() if at_once else ():
            if pod.workload == guest.workload and not pod.ended:
                where = PODS.path(pod.namespace, pod.name)
                with suppress(ResourceNotFound, Conflict):
                    await self._kube.delete(where, grace_seconds=KILL_SECONDS)


def _is_about(happening: Happening, guest: Guest) -> bool:
    return happening.namespace == guest.namespace and (
        happening.about == guest.name or happening.about.startswith(f"{guest.name}-")
    )
