"""TrainerService for the process that started this one."""

import asyncio
import hashlib
import hmac
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import grpc

from windlass.api.trainer.v1 import trainer_pb2 as pb
from windlass.api.trainer.v1 import trainer_pb2_grpc as rpc
from windlass.core import telemetry
from windlass.tuning_api.trainers.port import RunNotOpen, Trainer, TrainerLost
from windlass.tuning_api.trainers.records import Operation
from windlass.tuning_api.trainers.remote import operations, outcomes
from windlass.tuning_api.trainers.remote.file_parts import parts_of, written
from windlass.tuning_api.trainers.remote.pieces import PieceError, joined, split

# More than the service takes out of a run's log at once.
MAX_OPERATIONS = 256

log = telemetry.logger("trainer")
Context = grpc.aio.ServicerContext[Any, Any]


@runtime_checkable
class Parkable(Protocol):
    """A trainer that frees its device, and takes it again; one that cannot is ended instead."""

    async def park(self) -> int:
        """Frees the device; returns the bytes. Raises TrainerLost."""
        ...

    async def restore(self) -> None:
        """Takes it again. Raises TrainerLost."""
        ...


class TrainerServicer(rpc.TrainerServiceServicer):
    """Hands calls to a trainer, where the caller has the token and stays in its folder."""

    def __init__(self, trainer: Trainer, *, token_sha256: bytes, checkpoints: Path):
        self._trainer = trainer
        self._token_sha256 = token_sha256
        self._checkpoints = checkpoints.resolve()

    async def Describe(self, request: pb.DescribeRequest, context: Context) -> pb.DescribeResponse:
        """The models that are loaded."""
        async with self._admitted(context):
            models = map(operations.model_to, self._trainer.base_models)
            return pb.DescribeResponse(models=models)

    async def Open(self, request: pb.OpenRequest, context: Context) -> pb.OpenResponse:
        """Opens a run."""
        async with self._admitted(context):
            await self._trainer.open(operations.run_from(request.run))
        return pb.OpenResponse()

    async def Execute(
        self, requests: AsyncIterator[pb.Piece], context: Context
    ) -> AsyncIterator[pb.Piece]:
        """Carries out the operations of one run."""
        async with self._admitted(context):
            run_id = ""
            asked: list[Operation] = []

            async def named() -> AsyncIterator[pb.Piece]:
                nonlocal run_id
                async for piece in requests:
                    run_id = run_id or piece.run_id
                    yield piece

            async for message in joined(named(), pb.Operation):
                if len(asked) == MAX_OPERATIONS:
                    raise PieceError(f"there are more than {MAX_OPERATIONS} operations")
                asked.append(
                    await asyncio.to_thread(operations.operation_from, message, self._folder)
                )
            for outcome in await self._trainer.execute(run_id, asked):
                for piece in split(outcomes.outcome_to(outcome)):
                    yield piece

    async def Sample(self, request: pb.SampleRequest, context: Context) -> AsyncIterator[pb.Piece]:
        """Continues a prompt."""
        async with self._admitted(context):
            asked = operations.sampling_from(request, self._folder)
            for piece in split(outcomes.samples_to(await self._trainer.sample(asked))):
                yield piece

    async def Close(self, request: pb.CloseRequest, context: Context) -> pb.CloseResponse:
        """Forgets a run."""
        async with self._admitted(context):
            await self._trainer.close(request.run_id)
        return pb.CloseResponse()

    async def Park(self, request: pb.ParkRequest, context: Context) -> pb.ParkResponse:
        """Frees the device."""
        async with self._admitted(context):
            return pb.ParkResponse(device_bytes=await self._parkable.park())

    async def Restore(self, request: pb.RestoreRequest, context: Context) -> pb.RestoreResponse:
        """Takes the device again."""
        async with self._admitted(context):
            await self._parkable.restore()
        return pb.RestoreResponse()

    async def ReadFolder(self, request: pb.Folder, context: Context) -> AsyncIterator[pb.FilePart]:
        """The files of a folder."""
        async with self._admitted(context):
            async for part in parts_of(self._folder(request.path)):
                yield part

    async def WriteFolder(
        self, requests: AsyncIterator[pb.FilePart], context: Context
    ) -> pb.WriteFolderResponse:
        """Makes a folder of the files that come."""
        async with self._admitted(context):
            first = await anext(aiter(requests), pb.FilePart())
            await written(first, requests, self._folder(first.path))
        return pb.WriteFolderResponse()

    async def RemoveFolder(self, request: pb.Folder, context: Context) -> pb.RemoveFolderResponse:
        """Removes a folder."""
        async with self._admitted(context):
            folder = self._folder(request.path)
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        return pb.RemoveFolderResponse()

    @property
    def _parkable(self) -> Parkable:
        if not isinstance(self._trainer, Parkable):
            raise TrainerLost("This trainer does not park.")
        return self._trainer

    @asynccontextmanager
    async def _admitted(self, context: Context) -> AsyncIterator[None]:
        """Refuses a stranger, and translates what the trainer raises."""
        metadata = dict(context.invocation_metadata() or ())
        shown = str(metadata.get("authorization", "")).removeprefix("Bearer ")
        if not hmac.compare_digest(hashlib.sha256(shown.encode()).digest(), self._token_sha256):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "This is not your trainer.")
        try:
            yield
        except RunNotOpen:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "The run is not open here.")
        except TrainerLost as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        except (PieceError, ValueError) as error:
            log.error("trainer_refused", reason=str(error))
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))

    def _folder(self, path: str) -> Path:
        found = (self._checkpoints / path).resolve()
        if not found.is_relative_to(self._checkpoints) or found == self._checkpoints:
            raise ValueError(f"{path} is not among the checkpoints")
        return found
