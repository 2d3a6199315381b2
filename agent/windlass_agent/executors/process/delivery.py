"""What an attempt still owes the control plane: its log, and the result nobody told yet."""

import asyncio
from collections.abc import Callable

import grpc

from windlass.api.jobs.v1 import jobs_pb2
from windlass.api.runner.v1 import runner_pb2
from windlass.core import telemetry
from windlass_agent.control import ControlPlane
from windlass_agent.executors.process import logs
from windlass_agent.executors.process.records import Records
from windlass_agent.retrying import Backoff, is_final, reason_of
from windlass_agent.runner_service import SUPERSEDED

_log = telemetry.logger("delivery")


class Delivery:
    """Repeats until it is taken, or refused for good."""

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
            _log.info("log refused", attempt=self._name, reason=reason_of(error))
            if reason_of(error) == SUPERSEDED:
                self._superseded()

    async def _append(self, offset: int, data: bytes) -> int:
        return await self._control.append_log(self._run, offset, data)

    async def result(self) -> None:
        """Says for the runner how it ended, if it had no time to."""
        left = self._records.exit(self._name)
        if left is None or left.reported or self._told:
            return
        finish = runner_pb2.FinishRequest(
            outcome=runner_pb2.Outcome.Value(f"OUTCOME_{left.outcome.upper()}"),
            error_code=left.error_code,
            error_message=left.error_message,
            error_param=left.error_param,
            trained_tokens=left.trained_tokens,
            last_seq=left.last_seq,
        )
        backoff = Backoff()
        while not await self._finish(jobs_pb2.RunFinishRequest(run=self._run, finish=finish)):
            await backoff.pause()
        self._told = True

    async def _finish(self, request: jobs_pb2.RunFinishRequest) -> bool:
        try:
            await self._control.finish(request)
        except grpc.aio.AioRpcError as error:
            return is_final(error)
        return True
