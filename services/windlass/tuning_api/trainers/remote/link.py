"""One life of a trainer's process: the process, its channel, and the runs that it holds."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import grpc

from windlass.api.trainer.v1 import trainer_pb2 as pb
from windlass.api.trainer.v1 import trainer_pb2_grpc as rpc
from windlass.core.rpc.clients import CHANNEL_OPTIONS
from windlass.tuning_api.trainers.port import RunNotOpen, TrainerLost
from windlass.tuning_api.trainers.records import (
    Operation,
    OperationFailed,
    Outcome,
    Run,
    SampleRequest,
    Samples,
    TrainableModel,
)
from windlass.tuning_api.trainers.remote import operations, outcomes
from windlass.tuning_api.trainers.remote.carried import (
    CarriedFolders,
    OperationFolders,
    SeenFolders,
)
from windlass.tuning_api.trainers.remote.launched import LaunchedProcess
from windlass.tuning_api.trainers.remote.pieces import PieceError, joined, split
from windlass.tuning_api.trainers.seats import Seat


class TrainerLink:
    """Calls to one process; any of them that fails means that the process is lost."""

    def __init__(self, process: LaunchedProcess, seat: Seat):
        self.process = process
        self.seat = seat
        # The project of each run that is open.
        self.runs: dict[str, str] = {}
        self.calls = 0
        self._lost = False
        self._metadata = (("authorization", f"Bearer {process.token}"),)
        self._channel = grpc.aio.insecure_channel(f"unix:{process.socket}", CHANNEL_OPTIONS)
        self._stub: rpc.TrainerServiceAsyncStub = rpc.TrainerServiceStub(self._channel)
        most = process.folder_bytes
        self._folders: OperationFolders = (
            SeenFolders() if most is None else CarriedFolders(self._stub, self._metadata, most)
        )

    @property
    def is_lost(self) -> bool:
        """True once the process is gone, or no longer does what it is asked."""
        return self._lost or self.process.has_ended

    @property
    def is_idle(self) -> bool:
        """True while it holds no run and nothing is asked of it."""
        return not self.runs and not self.calls

    async def describe(self) -> Sequence[TrainableModel]:
        """The models that it has loaded, once it has; raises TrainerLost."""
        call = asyncio.ensure_future(
            self._stub.Describe(pb.DescribeRequest(), metadata=self._metadata, wait_for_ready=True)
        )
        ending = asyncio.create_task(self.process.wait())
        try:
            await asyncio.wait((call, ending), return_when=asyncio.FIRST_COMPLETED)
            if not call.done():
                raise self._lose("its process ended before it served")
            return [operations.model_from(one) for one in (await call).models]
        except grpc.aio.AioRpcError as error:
            raise self._lose(str(error.details())) from error
        finally:
            call.cancel()
            ending.cancel()

    async def open(self, run: Run) -> None:
        """Opens a run; raises TrainerLost."""
        request = pb.OpenRequest(run=operations.run_to(run))
        with self._asked():
            await self._stub.Open(request, metadata=self._metadata)
        self.runs[run.id] = run.project_id

    async def execute(self, run_id: str, asked: Sequence[Operation]) -> Sequence[Outcome]:
        """Carries out operations; raises RunNotOpen, TrainerLost."""
        with self._asked(run_id):
            there = await self._folders.sent(asked)
            answers: Any = self._stub.Execute(_pieces(run_id, there), metadata=self._metadata)
            found = [outcomes.outcome_from(one) async for one in joined(answers, pb.Outcome)]
        if len(found) != len(asked):
            raise self._lose("an operation has no outcome")
        with self._asked():
            await self._folders.fetched(asked, found)
        return found

    async def sample(self, request: SampleRequest) -> Samples | OperationFailed:
        """Continues a prompt; raises TrainerLost."""
        with self._asked():
            async with self._folders.lent(request.adapter) as folder:
                message = operations.sampling_to(replace(request, adapter=folder))
                answers: Any = self._stub.Sample(message, metadata=self._metadata)
                async for one in joined(answers, pb.SampleOutcome):
                    return outcomes.samples_from(one)
        raise self._lose("a prompt has no answer")

    async def close(self, run_id: str) -> None:
        """Has the process forget a run; one that is lost has."""
        self.runs.pop(run_id, None)
        with suppress(TrainerLost), self._asked():
            await self._stub.Close(pb.CloseRequest(run_id=run_id), metadata=self._metadata)

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self.process.pid

    async def park(self) -> int:
        """Has the process free its device; returns the bytes. Raises TrainerLost."""
        with self._asked():
            parked = await self._stub.Park(pb.ParkRequest(), metadata=self._metadata)
        return parked.device_bytes

    async def restore(self) -> None:
        """Has the process take its device again. Raises TrainerLost."""
        with self._asked():
            await self._stub.Restore(pb.RestoreRequest(), metadata=self._metadata)

    async def end(self) -> None:
        """Ends the process and gives its seat back; whoever waits gets TrainerLost."""
        self._lost = True
        await self.process.end()
        await self._channel.close()
        await self.seat.give_back()

    @contextmanager
    def _asked(self, run_id: str = "") -> Iterator[None]:
        """Translates what a call raises; raises RunNotOpen, TrainerLost."""
        try:
            yield
        except grpc.aio.AioRpcError as error:
            if run_id and error.code() is grpc.StatusCode.FAILED_PRECONDITION:
                self.runs.pop(run_id, None)
                raise RunNotOpen(run_id) from error
            raise self._lose(str(error.details())) from error
        except (PieceError, ValueError) as error:
            raise self._lose(str(error)) from error
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if not self._lost or (task is not None and task.cancelling()):
                raise
            # Nobody cancelled the caller: gRPC says so of calls whose channel is closed.
            raise TrainerLost("its process ended") from error

    def _lose(self, reason: str) -> TrainerLost:
        self._lost = True
        return TrainerLost(reason)


async def _pieces(run_id: str, asked: Sequence[Operation]) -> AsyncIterator[pb.Piece]:
    for operation in asked:
        # Thousands of sequences take their time.
        for piece in await asyncio.to_thread(_split, operation, run_id):
            yield piece


def _split(operation: Operation, run_id: str) -> list[pb.Piece]:
    return list(split(operations.operation_to(operation), run_id))
