"""Delivery of an attempt's log and result to the control plane."""

import asyncio
from collections.abc import Callable

import grpc

from windlass.api.jobs.v1 import jobs_pb2
from windlass.core import telemetry
from windlass.core.backoff import Backoff
from windlass_agent.control_plane.connection import ControlPlane
from windlass_agent.executors.process.jobs import logs
from windlass_agent.executors.process.jobs.records import Records
from windlass_agent.retrying import is_final, reason_of
from windlass_agent.runner_service import SUPERSEDED

_log = telemetry.logger("delivery")


class AttemptDelivery:
    """Delivery that is retried until it is accepted or refused for good."""

    def __init__(
        self,
        run: jobs_pb2.Run,
        name: str,
        *,
        records: Records,
        control: ControlPlane,
        superseded: Callable[[], None],
    ):
        self._run = run
        self._name = name
        self._records = records
        self._control = control
        self._superseded = superseded
        self._told = False

    async def log(self, ended: asyncio.Event) -> None:
        """Follows the log until the attempt has ended and all of it is stored."""
        try:
            await logs.ship(self._records.log(self._name), self._append, ended)
        except grpc.aio.AioRpcError as error:
            _log.info("log_refused", attempt=self._name, reason=reason_of(error))
            if reason_of(error) == SUPERSEDED:
                self._superseded()

    async def _append(self, offset: int, data: bytes) -> int:
        return await self._control.append_log(self._run, offset, data)

    async def result(self) -> None:
        """Reports the runner's outcome to jobs if the runner could not."""
        left = self._records.exit(self._name)
        if left is None or left.reported or self._told:
            return
        backoff = Backoff()
        while not await self._finish(left.to_finish(self._run)):
            await backoff.pause()
        self._told = True

    async def _finish(self, request: jobs_pb2.RunFinishRequest) -> bool:
        try:
            await self._control.finish(request)
        except grpc.aio.AioRpcError as error:
            return is_final(error)
        return True
