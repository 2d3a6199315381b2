"""The servicer of transfers."""

import secrets
from typing import Any

from windlass.api.tuning.v1 import transfer_pb2 as pb
from windlass.api.tuning.v1 import transfer_pb2_grpc as rpc
from windlass.api.tuning.v1 import tuning_pb2
from windlass.core.clock import now_seconds
from windlass.core.rpc.auth import current
from windlass.tuning import messages
from windlass.tuning.admission import reader_of
from windlass.tuning.domain import CheckpointPath, parse_checkpoint_id, parse_path
from windlass.tuning.storage.checkpoints import Row, WeightsStore
from windlass.tuning.storage.sessions import TuningSessionStore
from windlass.tuning.transfer.copying import CheckpointCopies
from windlass.tuning.transfer.downloads import CheckpointDownloads, ends_at
from windlass.tuning.transfer.registration import CheckpointRegistration
from windlass.tuning.transfer.traces import SessionTraces

# Between a request that shows an access token and what is lent for it.
LOAN_SECONDS = 600


class TransferServicer(rpc.TransferServiceServicer):
    """TransferService."""

    def __init__(
        self,
        sessions: TuningSessionStore,
        checkpoints: WeightsStore,
        copies: CheckpointCopies,
        downloads: CheckpointDownloads,
        traces: SessionTraces,
        registration: CheckpointRegistration,
    ):
        self._sessions = sessions
        self._checkpoints = checkpoints
        self._copies = copies
        self._downloads = downloads
        self._traces = traces
        self._registration = registration

    async def PublishCheckpoint(
        self, request: pb.PublishCheckpointRequest, context: Any
    ) -> tuning_pb2.Checkpoint:
        """Lets the organization's other projects read a checkpoint."""
        path = parse_checkpoint_id(request.run_id, request.checkpoint_id)
        return await self._published(path, is_published=True)

    async def UnpublishCheckpoint(
        self, request: pb.UnpublishCheckpointRequest, context: Any
    ) -> tuning_pb2.Checkpoint:
        """Keeps a checkpoint for its project again."""
        path = parse_checkpoint_id(request.run_id, request.checkpoint_id)
        return await self._published(path, is_published=False)

    async def CopyCheckpoint(
        self, request: pb.CopyCheckpointRequest, context: Any
    ) -> tuning_pb2.Checkpoint:
        """Copies a checkpoint into a run of the caller's project."""
        path = parse_path(request.source_path)
        if request.access:
            source = await self._checkpoints.lent(request.access, path)
            current().require_model(source.base_model, "source_path")
        else:
            source = await self._found(path, "source_path")
        run_id = await self._copies.copy(current(), request, source)
        return messages.checkpoint(await self._found(parse_checkpoint_id(run_id, path.id)))

    async def GetDownloads(self, request: pb.GetDownloadsRequest, context: Any) -> pb.Downloads:
        """Signs URLs of a checkpoint."""
        found = await self._found(parse_checkpoint_id(request.run_id, request.checkpoint_id))
        # Before they are signed: they end no earlier than this says.
        until = ends_at()
        sign = self._downloads.archive if request.archive else self._downloads.files
        return pb.Downloads(urls=await sign(found, current().key_id), expires_at=until)

    async def RegisterCheckpoint(
        self, request: pb.RegisterCheckpointRequest, context: Any
    ) -> pb.RegisterCheckpointResponse:
        """Makes a checkpoint a model of the project."""
        model_id = await self._registration.register(
            current(), request.run_id, request.checkpoint_id, request.suffix, request.base_model
        )
        return pb.RegisterCheckpointResponse(model_id=model_id)

    async def ServeCheckpoint(
        self, request: pb.ServeCheckpointRequest, context: Any
    ) -> pb.ServeCheckpointResponse:
        """Says which model answers for a checkpoint, and makes it if need be."""
        model_id = await self._registration.served(current(), request.path)
        return pb.ServeCheckpointResponse(model_id=model_id)

    async def LendCheckpoint(
        self, request: pb.LendCheckpointRequest, context: Any
    ) -> pb.LentCheckpoint:
        """Lends a checkpoint to whoever shows what this answers."""
        path = parse_path(request.path)
        await self._found(path)
        access = secrets.token_urlsafe(32)
        until = now_seconds() + LOAN_SECONDS
        await self._checkpoints.lend(reader_of(current()), path, access, until)
        return pb.LentCheckpoint(access=access)

    async def ExportTrace(self, request: pb.ExportTraceRequest, context: Any) -> pb.Downloads:
        """Signs the URL of a session's timeline."""
        project_id = current().require_project()
        session = await self._sessions.get(project_id, request.session_id)
        key = await self._traces.write(project_id, session.id)
        until, name = ends_at(), f"{session.id}.json"
        url = await self._downloads.sign(key, name, current().key_id)
        return pb.Downloads(urls={name: url}, expires_at=until)

    async def _found(self, path: CheckpointPath, param: str = "path") -> Row:
        found = await self._checkpoints.find(reader_of(current()), path)
        current().require_model(found.base_model, param)
        return found

    async def _published(
        self, path: CheckpointPath, *, is_published: bool
    ) -> tuning_pb2.Checkpoint:
        project_id = current().require_project()
        await self._found(path)
        await self._checkpoints.publish(project_id, path, is_published=is_published)
        return messages.checkpoint(await self._found(path))
