"""The servicer of tuning."""

from typing import Any

from windlass.api.tuning.v1 import tuning_pb2 as pb
from windlass.api.tuning.v1 import tuning_pb2_grpc as rpc
from windlass.core.clock import now_seconds
from windlass.core.config.tuning import TuningSection
from windlass.core.db.paging import cut, page_size
from windlass.core.db.wake import Wake
from windlass.core.errors import InvalidArgument
from windlass.core.ids import new_id
from windlass.core.rpc.auth import current
from windlass.tuning import messages
from windlass.tuning.admission import (
    reader_of,
    session_query,
)
from windlass.tuning.domain import (
    ENDS,
    MAX_TAGS,
    CheckpointPath,
    parse_checkpoint_id,
    parse_path,
    valid_metadata,
    valid_text,
    valid_ttl,
)
from windlass.tuning.replaying.replayer import Replayer
from windlass.tuning.sampler_requests import SamplerRequests
from windlass.tuning.seats.lines import WaitingReasons
from windlass.tuning.storage.checkpoints import WeightsStore
from windlass.tuning.storage.runs import RunStore
from windlass.tuning.storage.searching import SessionSearch
from windlass.tuning.storage.sessions import Row, TuningSessionStore
from windlass.tuning.submission import Submission
from windlass.tuning_api.trainers.port import Trainer
from windlass.tuning_api.trainers.records import MAX_DATUMS

WAKE_OVER = "tuning over"
# At their largest they fill a message.
MAX_LIST = 200
MAX_OFFSET = 1_000_000


class TuningServicer(rpc.TuningServiceServicer):
    """TuningService."""

    def __init__(
        self,
        sessions: TuningSessionStore,
        runs: RunStore,
        checkpoints: WeightsStore,
        search: SessionSearch,
        submission: Submission,
        samplers: SamplerRequests,
        replayer: Replayer,
        trainer: Trainer,
        waiting: WaitingReasons,
        wake: Wake,
        settings: TuningSection,
    ):
        self._waiting = waiting
        self._sessions = sessions
        self._runs = runs
        self._checkpoints = checkpoints
        self._search = search
        self._submission = submission
        self._samplers = samplers
        self._replayer = replayer
        self._trainer = trainer
        self._wake = wake
        self._settings = settings

    async def GetCapabilities(
        self, request: pb.GetCapabilitiesRequest, context: Any
    ) -> pb.Capabilities:
        """Models that runs can be made on."""
        return pb.Capabilities(
            models=[
                pb.SupportedModel(name=model.name, max_context_length=model.max_context_length)
                for model in self._trainer.base_models
                if current().may_use(model.name)
            ]
        )

    async def CreateSession(self, request: pb.CreateSessionRequest, context: Any) -> pb.Session:
        """Begins a session."""
        caller = current()
        if len(request.tags) > MAX_TAGS:
            raise InvalidArgument(f"A session has at most {MAX_TAGS} tags.", param="tags")
        session_id = new_id("session-")
        await self._sessions.create(
            {
                "id": session_id,
                "organization_id": caller.organization_id,
                "project_id": caller.require_project(),
                "user_id": caller.user_id,
                "tags": [valid_text(tag, "tags") for tag in request.tags],
                "user_metadata": valid_metadata(request.user_metadata),
                "sdk_version": valid_text(request.sdk_version, "sdk_version"),
                "display_name": valid_text(request.display_name, "display_name"),
            }
        )
        return await self._session(
            await self._sessions.get(caller.require_project(), session_id), is_alone=True
        )

    async def Heartbeat(self, request: pb.HeartbeatRequest, context: Any) -> pb.HeartbeatResponse:
        """Keeps a session alive."""
        await self._sessions.beat(current().require_project(), request.session_id)
        return pb.HeartbeatResponse()

    async def FinishSession(self, request: pb.FinishSessionRequest, context: Any) -> pb.Session:
        """Ends a session, and with it what waits for its runs."""
        if request.end not in ENDS:
            raise InvalidArgument(f"reason must be one of {', '.join(sorted(ENDS))}.")
        detail = request.detail[:256].replace("\0", "")
        row = await self._sessions.finish(
            current().require_project(), request.session_id, request.end, detail
        )
        self._wake.touch(WAKE_OVER)
        return await self._session(row)

    async def GetSession(self, request: pb.GetSessionRequest, context: Any) -> pb.Session:
        """Returns one session."""
        row = await self._sessions.get(current().require_project(), request.session_id)
        return await self._session(row)

    async def ListSessions(
        self, request: pb.ListSessionsRequest, context: Any
    ) -> pb.ListSessionsResponse:
        """The project's sessions, without what is theirs."""
        size = page_size(request.limit, max_limit=MAX_LIST)
        rows = await self._sessions.list(
            current().require_project(),
            after=request.after,
            limit=size + 1,
            offset=_offset(request.offset),
        )
        page, has_more = cut(rows, size)
        found = [await self._session(row, is_alone=True) for row in page]
        return pb.ListSessionsResponse(sessions=found, has_more=has_more)

    async def SearchSessions(
        self, request: pb.SearchSessionsRequest, context: Any
    ) -> pb.SearchSessionsResponse:
        """The project's sessions that match, with what is counted of them."""
        size = page_size(request.limit, max_limit=MAX_LIST)
        silent_before = now_seconds() - self._settings.session_seconds
        found = await self._search.find(
            current().require_project(),
            session_query(request, alive_since=silent_before),
            after=request.after,
            limit=size + 1,
        )
        page, has_more = cut(found, size)
        sessions = [
            pb.FoundSession(
                session=await self._session(row, is_alone=True), checkpoints=number,
                checkpoint_bytes=size_of,
            )
            for row, number, size_of in page
        ]  # fmt: skip
        return pb.SearchSessionsResponse(sessions=sessions, has_more=has_more)

    async def CreateRun(self, request: pb.CreateRunRequest, context: Any) -> pb.Operation:
        """Makes a run, which its first operation opens."""
        return await self._submission.create_run(current(), request)

    async def GetRun(self, request: pb.GetRunRequest, context: Any) -> pb.Run:
        """Returns one run."""
        row = await self._runs.get(current().require_project(), request.run_id)
        current().require_model(row.base_model, "model_id")
        return self._run(row)

    async def ListRuns(self, request: pb.ListRunsRequest, context: Any) -> pb.ListRunsResponse:
        """The project's runs."""
        size = page_size(request.limit, max_limit=MAX_LIST)
        rows, total = await self._runs.list(
            current().require_project(),
            after=request.after,
            limit=size + 1,
            offset=_offset(request.offset),
        )
        page, has_more = cut(rows, size)
        return pb.ListRunsResponse(runs=map(self._run, page), has_more=has_more, total=total)

    async def DeleteRun(self, request: pb.DeleteRunRequest, context: Any) -> pb.DeleteRunResponse:
        """Takes a run away; whatever waits for it ends."""
        project_id = current().require_project()
        base_model = await self._runs.base_model(project_id, request.run_id)
        current().require_model(base_model, "model_id")
        await self._runs.mark_deleted(project_id, request.run_id)
        self._wake.touch(WAKE_OVER)
        return pb.DeleteRunResponse()

    async def ReplayRun(self, request: pb.ReplayRunRequest, context: Any) -> pb.ReplayReport:
        """Computes a run's log again, and compares."""
        return await self._replayer.replay(current(), request)

    async def ForkRun(self, request: pb.ForkRunRequest, context: Any) -> pb.ForkedRun:
        """Begins another run within a run's log."""
        return await self._replayer.fork(current(), request)

    async def Submit(self, request: pb.SubmitRequest, context: Any) -> pb.Operation:
        """Writes an operation into a run's log."""
        return await self._submission.submit(current(), request)

    async def CreateSampler(self, request: pb.CreateSamplerRequest, context: Any) -> pb.Sampler:
        """Makes a sampler of a base model or a checkpoint."""
        return await self._samplers.create(current(), request)

    async def GetSampler(self, request: pb.GetSamplerRequest, context: Any) -> pb.Sampler:
        """Returns one sampler."""
        row = await self._sessions.sampler(current().require_project(), request.sampler_id)
        return messages.sampler(row)

    async def Sample(self, request: pb.SampleRequest, context: Any) -> pb.Operation:
        """Writes what a sampler is asked."""
        return await self._submission.sample(current(), request)

    async def GetResult(self, request: pb.GetResultRequest, context: Any) -> pb.GetResultResponse:
        """Waits for a result."""
        result = await self._submission.result(
            current().require_project(), request.operation_id, request.wait_ms
        )
        if result is not None:
            return pb.GetResultResponse(result=result)
        why = await self._waiting.of(current().require_project(), request.operation_id)
        return pb.GetResultResponse(waits_for=why)

    async def JoinSampler(
        self, request: pb.JoinSamplerRequest, context: Any
    ) -> pb.JoinSamplerResponse:
        """Gives one more client of a sampler a number of its own."""
        project_id = current().require_project()
        number = await self._sessions.join_sampler(project_id, request.sampler_id)
        return pb.JoinSamplerResponse(client_number=number)

    async def CancelOperation(
        self, request: pb.CancelOperationRequest, context: Any
    ) -> pb.CancelOperationResponse:
        """Ends what a sampler was asked and has not answered."""
        await self._submission.cancel(current().require_project(), request.operation_id)
        return pb.CancelOperationResponse()

    async def PollEnded(self, request: pb.PollEndedRequest, context: Any) -> pb.PollEndedResponse:
        """Waits for ends of what a client of a sampler asked."""
        return await self._samplers.ended(current().require_project(), request)

    async def CreateLoss(self, request: pb.CreateLossRequest, context: Any) -> pb.Operation:
        """Stores a loss of a session."""
        return await self._submission.create_loss(current(), request)

    async def GetQueue(self, request: pb.GetQueueRequest, context: Any) -> pb.Queue:
        """Tells how much room the project's queue has."""
        caller = current()
        waiting, most = await self._runs.queue(caller.organization_id, caller.require_project())
        return pb.Queue(waiting=waiting, max_waiting=most, max_examples=MAX_DATUMS)

    async def GetCheckpoint(self, request: pb.GetCheckpointRequest, context: Any) -> pb.Checkpoint:
        """Returns one checkpoint."""
        return messages.checkpoint(await self._found(parse_path(request.path)))

    async def ListCheckpoints(
        self, request: pb.ListCheckpointsRequest, context: Any
    ) -> pb.ListCheckpointsResponse:
        """The checkpoints of the project, or of one of its runs."""
        project_id = current().require_project()
        if request.run_id:
            await self._runs.get(project_id, request.run_id)
        size = page_size(request.limit, max_limit=MAX_LIST)
        rows, total = await self._checkpoints.list(
            project_id,
            run_id=request.run_id,
            after=request.after,
            limit=size + 1,
            offset=_offset(request.offset),
        )
        page, has_more = cut(rows, size)
        return pb.ListCheckpointsResponse(
            checkpoints=map(messages.checkpoint, page), has_more=has_more, total=total
        )

    async def KeepCheckpoint(
        self, request: pb.KeepCheckpointRequest, context: Any
    ) -> pb.Checkpoint:
        """Sets when a checkpoint goes."""
        project_id = current().require_project()
        path = parse_checkpoint_id(request.run_id, request.checkpoint_id)
        seconds = valid_ttl(request.ttl_seconds)
        await self._found(path)
        await self._checkpoints.expire_at(
            project_id, path, now_seconds() + seconds if seconds else 0
        )
        return messages.checkpoint(await self._found(path))

    async def DeleteCheckpoint(
        self, request: pb.DeleteCheckpointRequest, context: Any
    ) -> pb.DeleteCheckpointResponse:
        """Takes a checkpoint away."""
        path = parse_checkpoint_id(request.run_id, request.checkpoint_id)
        await self._found(path)
        await self._checkpoints.mark_deleting(current().require_project(), path)
        self._wake.touch(WAKE_OVER)
        return pb.DeleteCheckpointResponse()

    async def _found(self, path: CheckpointPath) -> Row:
        """A checkpoint that the caller may read; raises NotFound."""
        found = await self._checkpoints.find(reader_of(current()), path)
        current().require_model(found.base_model, "path")
        return found

    async def _session(self, row: Row, *, is_alone: bool = False) -> pb.Session:
        run_ids, sampler_ids = ([], []) if is_alone else await self._sessions.children(row.id)
        return messages.session(
            row,
            expires_after=self._settings.session_seconds,
            run_ids=run_ids,
            sampler_ids=sampler_ids,
        )

    def _run(self, row: Row) -> pb.Run:
        models = {model.name: model for model in self._trainer.base_models}
        return messages.run(row, models.get(row.base_model))


def _offset(offset: int) -> int:
    if not 0 <= offset <= MAX_OFFSET:
        raise InvalidArgument(f"offset must be between 0 and {MAX_OFFSET}.", param="offset")
    return offset
