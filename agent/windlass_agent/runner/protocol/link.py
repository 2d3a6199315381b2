"""Connection of a runner to its agent; calls are retried until the agent replies."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import grpc

from windlass.api.models.v1 import models_pb2
from windlass.api.runner.v1 import runner_pb2 as pb
from windlass.api.runner.v1.runner_pb2_grpc import RunnerServiceAsyncStub, RunnerServiceStub
from windlass.core.backoff import Backoff
from windlass.core.errors import InvalidArgument, from_rpc
from windlass.core.rpc.clients import CHANNEL_OPTIONS
from windlass.core.telemetry import logger
from windlass_agent.runner.protocol.outcome import Outcome

_CALL_SECONDS = 30.0
# Longer than the agent waits for the control plane.
_GRADE_SECONDS = 110.0
_LONGEST_PAUSE_SECONDS = 5.0
# A restarted agent may listen before it knows us again.
_STRANGER_SECONDS = 60.0
# An agent that has not come back by then never will: nobody else ends its runners.
_AGENT_SECONDS = 86_400.0
_PASSING = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
    }
)

_log = logger("runner.link")


class CallRefused(Exception):
    """The agent refused the call: the attempt is superseded, finished or not its own.

    `reason` is the stable one of the control plane.
    """

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class Rejected(Exception):
    """The platform rejected the request for good."""


def backoff() -> Backoff:
    """Returns the pauses between tries of an agent that is away."""
    return Backoff(shortest=0.1, longest=_LONGEST_PAUSE_SECONDS)


class AgentLink:
    """Client of RunnerService; each call is retried for up to a day.

    Every method raises CallRefused or Rejected when the agent answers that it will not.
    """

    def __init__(self, address: str, *, token: Callable[[], str], ca: Path | None = None) -> None:
        """`token` is asked at each call, since a file's changes while a job runs."""
        if ca is None:
            self._channel = grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
        else:
            credentials = grpc.ssl_channel_credentials(ca.read_bytes())
            self._channel = grpc.aio.secure_channel(address, credentials, CHANNEL_OPTIONS)
        self._stub: RunnerServiceAsyncStub = RunnerServiceStub(self._channel)
        self._token = token

    async def assignment(self) -> pb.Assignment:
        """The assignment, with fresh URLs."""
        answer: pb.Assignment = await self._call(
            self._stub.GetAssignment, pb.GetAssignmentRequest()
        )
        return answer

    async def report(self, events: Sequence[pb.RunEvent]) -> int:
        """Sends events; returns the highest sequence number that is stored."""
        answer = await self._call(self._stub.Report, pb.ReportRequest(events=events))
        return int(answer.acknowledged)

    async def create_artifact(
        self, kind: "pb.ArtifactKind.ValueType", *, step: int, manifest: models_pb2.Manifest
    ) -> pb.CreateArtifactResponse:
        """URLs for the files of a manifest that are not uploaded yet."""
        request = pb.CreateArtifactRequest(kind=kind, step=step, manifest=manifest)
        answer: pb.CreateArtifactResponse = await self._call(self._stub.CreateArtifact, request)
        return answer

    async def commit_artifact(self, request: pb.CommitArtifactRequest) -> None:
        """Commits an artifact whose files are all uploaded."""
        await self._call(self._stub.CommitArtifact, request)

    async def grade(self, request: pb.GradeRequest) -> pb.GradeResponse:
        """Returns the rewards that the models of the job's grader give to answers.

        Asks once: when nobody answers now, that is in `pending`.
        """
        try:
            answer: pb.GradeResponse = await self._stub.Grade(
                request, timeout=_GRADE_SECONDS, metadata=self._metadata()
            )
        except grpc.aio.AioRpcError as error:
            if not _may_pass(error.code(), 0.0):
                raise _refusal(error) from error
            _log.info("agent_away", code=error.code().name)
            return pb.GradeResponse(pending="The platform is not responding.")
        return answer

    async def finish(self, outcome: Outcome, *, last_seq: int) -> None:
        """Reports the outcome of the attempt."""
        await self._call(self._stub.Finish, outcome.to_proto(last_seq))

    async def close(self) -> None:
        """Closes the connection."""
        await self._channel.close()

    async def _call(self, method: Any, request: Any) -> Any:
        started = asyncio.get_running_loop().time()
        pauses = backoff()
        while True:
            try:
                return await method(request, timeout=_CALL_SECONDS, metadata=self._metadata())
            except grpc.aio.AioRpcError as error:
                elapsed = asyncio.get_running_loop().time() - started
                if not _may_pass(error.code(), elapsed):
                    raise _refusal(error) from error
                _log.info("agent_away", code=error.code().name, seconds=round(elapsed, 1))
            await pauses.pause()

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self._token()}"),)


def _refusal(error: grpc.aio.AioRpcError) -> CallRefused | Rejected:
    refusal = from_rpc(error)
    if isinstance(refusal, InvalidArgument):
        return Rejected(refusal.message)
    return CallRefused(refusal.message, reason=refusal.reason)


def _may_pass(code: grpc.StatusCode, elapsed: float) -> bool:
    if code is grpc.StatusCode.UNAUTHENTICATED:
        return elapsed < _STRANGER_SECONDS
    return code in _PASSING and elapsed < _AGENT_SECONDS
