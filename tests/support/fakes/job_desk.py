"""A stand-in for the jobs service in tests of the agent that only keeps what it is told.

The real one needs files, models and usage; that the two fit is proven end to end.
"""

from collections import defaultdict
from typing import Any

import grpc

from windlass.api.jobs.v1 import jobs_pb2 as pb
from windlass.api.jobs.v1 import jobs_pb2_grpc as rpc
from windlass.api.runner.v1 import runner_pb2
from windlass.core.errors import FailedPrecondition, Unavailable
from windlass.core.rpc.auth import current_agent


class JobDesk(rpc.JobsAgentServiceServicer):
    """Logs by job and attempt; `lose_answers` stores and then fails, as a cut line does."""

    def __init__(self) -> None:
        self.logs: dict[tuple[str, int], bytearray] = defaultdict(bytearray)
        self.finished: list[pb.RunFinishRequest] = []
        self.assigned: list[tuple[str, int, str]] = []
        self.superseded: set[tuple[str, int]] = set()
        self.lose_answers = 0

    def _check(self, run: pb.Run) -> None:
        if (run.job_id, run.attempt) in self.superseded:
            raise FailedPrecondition("There is a newer attempt.", reason="attempt_superseded")

    def _lose(self) -> None:
        if self.lose_answers:
            self.lose_answers -= 1
            raise Unavailable("The line was cut.")

    def _unasked(self, request: Any, context: Any) -> Any:
        raise NotImplementedError

    Report = CreateArtifact = CommitArtifact = Grade = _unasked

    async def GetAssignment(
        self, request: pb.RunRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> runner_pb2.Assignment:
        self._check(request.run)
        run = request.run
        self.assigned.append((run.job_id, run.attempt, current_agent().cluster_id))
        return runner_pb2.Assignment(job_id=run.job_id, attempt=run.attempt)

    async def AppendLog(
        self, request: pb.AppendLogRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.AppendLogResponse:
        self._check(request.run)
        stored = self.logs[request.run.job_id, request.run.attempt]
        if request.offset <= len(stored):
            stored += request.data[len(stored) - request.offset :]
        self._lose()
        return pb.AppendLogResponse(stored=len(stored))

    async def Finish(
        self, request: pb.RunFinishRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> runner_pb2.FinishResponse:
        self._check(request.run)
        self._lose()
        self.finished.append(request)
        return runner_pb2.FinishResponse()

    def log(self, job_id: str, attempt: int = 1) -> bytes:
        return bytes(self.logs[job_id, attempt])
