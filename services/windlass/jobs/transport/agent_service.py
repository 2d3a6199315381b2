"""The servicer of calls that agents relay for their runners."""

from typing import Any

from windlass.api.jobs.v1 import jobs_pb2 as pb
from windlass.api.jobs.v1 import jobs_pb2_grpc as rpc
from windlass.api.runner.v1 import runner_pb2
from windlass.core.clock import now_ms
from windlass.core.errors import InvalidArgument
from windlass.core.rpc.auth import current_agent
from windlass.jobs.attempts import manifests
from windlass.jobs.attempts.grading import Grading
from windlass.jobs.attempts.run_inputs import InputGone, RunInputs
from windlass.jobs.attempts.store import AttemptStore
from windlass.jobs.attempts.uploads import Uploads
from windlass.jobs.domain.job import ArtifactKind, JobFailure
from windlass.jobs.domain.transitions import Finish
from windlass.jobs.storage.logs import LogStore
from windlass.jobs.transport import runner_messages

REPORT_EVENTS = 1000
LOG_BYTES = 4 * 2**20


class JobsAgentServicer(rpc.JobsAgentServiceServicer):
    """JobsAgentService; every call first asks whether the agent still holds the attempt."""

    def __init__(
        self,
        attempts: AttemptStore,
        inputs: RunInputs,
        uploads: Uploads,
        logs: LogStore,
        grading: Grading,
    ):
        self._attempts = attempts
        self._inputs = inputs
        self._uploads = uploads
        self._logs = logs
        self._grading = grading

    async def GetAssignment(self, request: pb.RunRequest, context: Any) -> runner_pb2.Assignment:
        """All that the runner needs, with URLs made now; without its inputs the job fails."""
        job = await self._attempts.get(_agent(), request.run)
        try:
            return await self._inputs.assignment(job)
        except InputGone as gone:
            failure = JobFailure(code=gone.reason, message=gone.message, param=gone.param or "")
            finish = Finish(outcome="failed", failure=failure)
            await self._attempts.finish(_agent(), request.run, finish, now_ms())
            raise

    async def Report(self, request: pb.RunReportRequest, context: Any) -> runner_pb2.ReportResponse:
        """Appends events."""
        events = request.report.events
        if len(events) > REPORT_EVENTS:
            raise InvalidArgument(
                f"A report may hold at most {REPORT_EVENTS} events.", param="events"
            )
        if any(event.seq < 1 for event in events):
            raise InvalidArgument("seq must be at least 1.", param="events")
        told = [runner_messages.run_event(event) for event in events]
        job = await self._attempts.report(_agent(), request.run, told, now_ms())
        return runner_pb2.ReportResponse(acknowledged=job.last_seq)

    async def CreateArtifact(
        self, request: pb.RunCreateArtifactRequest, context: Any
    ) -> runner_pb2.CreateArtifactResponse:
        """Says where to put what is not there yet."""
        wanted = request.artifact
        if int(wanted.kind) not in {int(kind) for kind in ArtifactKind}:
            raise InvalidArgument("The artifact needs a kind.", param="kind")
        artifact, missing = await self._uploads.begin(
            _agent(),
            request.run,
            ArtifactKind(wanted.kind),
            step=wanted.step,
            entries=manifests.entries(wanted.manifest),
            now=now_ms(),
        )
        urls = await self._inputs.uploads(artifact, missing)
        return runner_pb2.CreateArtifactResponse(artifact_id=artifact.id, uploads=urls)

    async def CommitArtifact(
        self, request: pb.RunCommitArtifactRequest, context: Any
    ) -> runner_pb2.CommitArtifactResponse:
        """Takes an artifact whose files are all there."""
        wanted = request.artifact
        await self._uploads.commit(
            _agent(),
            request.run,
            wanted.artifact_id,
            metrics=runner_messages.measured(wanted.metrics),
            is_adapter=wanted.is_adapter,
            now=now_ms(),
        )
        return runner_pb2.CommitArtifactResponse()

    async def Finish(self, request: pb.RunFinishRequest, context: Any) -> runner_pb2.FinishResponse:
        """Stores how the attempt ended, before anything follows from it."""
        finish = runner_messages.finish(request.finish)
        if finish is None:
            raise InvalidArgument("The attempt needs an outcome.", param="outcome")
        await self._attempts.finish(_agent(), request.run, finish, now_ms())
        return runner_pb2.FinishResponse()

    async def Grade(self, request: pb.RunGradeRequest, context: Any) -> runner_pb2.GradeResponse:
        """Asks the models of the job's own grader."""
        job = await self._attempts.get(_agent(), request.run)
        return await self._grading.grade(job, request.batch)

    async def AppendLog(self, request: pb.AppendLogRequest, context: Any) -> pb.AppendLogResponse:
        """Appends to the log; the rest of it may come after the attempt has ended."""
        if len(request.data) > LOG_BYTES or request.offset < 0:
            raise InvalidArgument(f"A chunk may hold at most {LOG_BYTES} bytes.", param="data")
        job = await self._attempts.get(_agent(), request.run, ended=True)
        stored = await self._logs.append(job, offset=request.offset, data=request.data)
        return pb.AppendLogResponse(stored=stored)


def _agent() -> str:
    return current_agent().cluster_id
