"""Delivery of attempts' logs and results to the control plane."""

import asyncio
import contextlib
from functools import partial

import grpc

from windlass.core import telemetry
from windlass.core.backoff import Backoff
from windlass_agent.control_plane.connection import ControlPlane
from windlass_agent.executors.kubernetes.attempt_state import AttemptState
from windlass_agent.executors.kubernetes.logs import LogShipper
from windlass_agent.executors.kubernetes.observe.snapshot import Key, PodSnapshot
from windlass_agent.kube import Kube
from windlass_agent.retrying import is_final

# How long the end of an attempt waits for its last word to be told.
LAST_WORD_SECONDS = 10.0

log = telemetry.logger("delivery")


class LogDelivery:
    """A shipper for the log of each attempt that has one."""

    def __init__(self, kube: Kube, control: ControlPlane):
        self._kube = kube
        self._control = control
        self._shippers: dict[Key, asyncio.Task[None]] = {}

    def follow(self, state: AttemptState) -> None:
        """Starts shipping the log once the runner has written one."""
        pod = _first(state)
        if pod is None or not pod.has_log or state.key in self._shippers:
            return
        shipper = LogShipper(
            self._kube,
            partial(self._control.append_log, state.run),
            pod=partial(_first, state),
            others=partial(_failed_others, state),
        )
        task = asyncio.create_task(shipper.run())
        self._shippers[state.key] = task
        task.add_done_callback(_tell_failure)

    async def finish(self, state: AttemptState, seconds: float) -> None:
        """Waits until the log is stored, or for at most the given time."""
        self.follow(state)
        task = self._shippers.get(state.key)
        if task is None:
            return
        await asyncio.wait({task}, timeout=seconds)
        task.cancel()
        self._shippers.pop(state.key, None)

    async def last_word(self, state: AttemptState) -> None:
        """Reports the runner's outcome to jobs if the runner could not."""
        left = state.exit
        if left is None or left.reported:
            return
        backoff = Backoff()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORD_SECONDS):
                while True:
                    try:
                        await self._control.finish(left.to_finish(state.run))
                        return
                    except grpc.aio.AioRpcError as error:
                        if is_final(error):
                            return
                    await backoff.pause()

    async def close(self) -> None:
        """Stops shipping; the next agent process continues."""
        tasks = list(self._shippers.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _first(state: AttemptState) -> PodSnapshot | None:
    return state.snapshot.pod_of(0) if state.snapshot is not None else None


def _failed_others(state: AttemptState) -> list[PodSnapshot]:
    """The other pods, where something failed."""
    pods = state.snapshot.pods if state.snapshot is not None else ()
    if not any(pod.phase == "Failed" for pod in pods):
        return []
    return [pod for pod in pods if pod.rank and pod.has_log]


def _tell_failure(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()):
        log.error("log_shipping_failed", exc_info=error)
