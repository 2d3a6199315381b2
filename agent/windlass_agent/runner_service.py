"""RunnerService for the runners of this cluster: checks the attempt's token, relays to jobs.

A token names its attempt, so a runner can neither name another one nor reach
anything but these six calls.
"""

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import grpc

from windlass.api.jobs.v1 import jobs_pb2 as jobs
from windlass.api.runner.v1 import runner_pb2 as pb
from windlass.api.runner.v1 import runner_pb2_grpc as rpc
from windlass.core.errors import REASON_KEY, AppError, from_rpc, to_metadata
from windlass.core.killpoints import reach
from windlass.core.rpc.auth import digest
from windlass.core.rpc.clients import PINGED_OPTIONS
from windlass_agent.control_plane.connection import CALL_SECONDS, ControlPlane

SUPERSEDED = "attempt_superseded"
# Models that grade may have to be loaded first.
GRADE_SECONDS = 100.0

Context = grpc.aio.ServicerContext[Any, Any]
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Registered:
    """An attempt whose runner may call; `superseded` is called when jobs knows a newer one."""

    run: jobs.Run
    superseded: Callable[[], None]
    # Told of every step that it reports.
    trained: Callable[[], None] = lambda: None


class Tokens(Protocol):
    """Lookup of the attempt that a caller's token belongs to."""

    async def find(self, token: str) -> Registered | None:
        """The attempt of a token, None for a stranger's; raises AppError when it cannot tell."""


class RunnerTokens:
    """Attempts by the token issued to each; only digests of tokens are kept."""

    def __init__(self) -> None:
        self._by_digest: dict[bytes, Registered] = {}

    def add(self, token: str, registered: Registered) -> None:
        """Lets an attempt's runner call."""
        self._by_digest[digest(token)] = registered

    def remove(self, token: str) -> None:
        """Ends that."""
        self._by_digest.pop(digest(token), None)

    async def find(self, token: str) -> Registered | None:
        """The attempt of a token."""
        return self._by_digest.get(digest(token))


class RunnerServicer(rpc.RunnerServiceServicer):
    """Adds the attempt to each call and passes it on; errors come back as they are."""

    def __init__(self, tokens: Tokens, control: ControlPlane):
        self._tokens = tokens
        self._control = control

    async def _admit(self, context: Context) -> Registered:
        metadata = dict(context.invocation_metadata() or ())
        scheme, _, token = str(metadata.get("authorization", "")).partition(" ")
        try:
            found = await self._tokens.find(token) if scheme.lower() == "bearer" else None
        except AppError as error:
            await context.abort(error.code, error.message, to_metadata(error))
            raise AssertionError("abort raises") from error
        if found is None:
            await context.abort(
                grpc.StatusCode.UNAUTHENTICATED,
                "This token does not belong to an attempt running here.",
                ((REASON_KEY, "invalid_runner_token"),),
            )
            raise AssertionError("abort raises")
        return found

    async def _relay(
        self,
        context: Context,
        method: Callable[..., Awaitable[Answer]],
        request: Any,
        *,
        seconds: float = CALL_SECONDS,
    ) -> Answer:
        return await self._pass_on(
            context, await self._admit(context), method, request, seconds=seconds
        )

    async def _pass_on(
        self,
        context: Context,
        found: Registered,
        method: Callable[..., Awaitable[Answer]],
        request: Any,
        *,
        seconds: float = CALL_SECONDS,
    ) -> Answer:
        request.run.CopyFrom(found.run)
        try:
            return await method(request, metadata=self._control.metadata, timeout=seconds)
        except grpc.aio.AioRpcError as error:
            failure = from_rpc(error)
            if failure.reason == SUPERSEDED:
                found.superseded()
            code = error.code()
            # The agent's own standing is no matter of its runners: they wait.
            if code is grpc.StatusCode.UNAUTHENTICATED:
                code = grpc.StatusCode.UNAVAILABLE
            await context.abort(code, failure.message, to_metadata(failure))

    async def GetAssignment(
        self, request: pb.GetAssignmentRequest, context: Context
    ) -> pb.Assignment:
        """The assignment of the attempt."""
        relayed = jobs.RunRequest()
        return await self._relay(context, self._control.jobs.GetAssignment, relayed)

    async def Report(self, request: pb.ReportRequest, context: Context) -> pb.ReportResponse:
        """Records a report."""
        relayed = jobs.RunReportRequest(report=request)
        found = await self._admit(context)
        answer = await self._pass_on(context, found, self._control.jobs.Report, relayed)
        if any(event.HasField("metrics") for event in request.events):
            found.trained()
        return answer

    async def CreateArtifact(
        self, request: pb.CreateArtifactRequest, context: Context
    ) -> pb.CreateArtifactResponse:
        """Creates an artifact; returns URLs for its files."""
        relayed = jobs.RunCreateArtifactRequest(artifact=request)
        return await self._relay(context, self._control.jobs.CreateArtifact, relayed)

    async def CommitArtifact(
        self, request: pb.CommitArtifactRequest, context: Context
    ) -> pb.CommitArtifactResponse:
        """Commits the uploaded artifact."""
        relayed = jobs.RunCommitArtifactRequest(artifact=request)
        return await self._relay(context, self._control.jobs.CommitArtifact, relayed)

    async def Grade(self, request: pb.GradeRequest, context: Context) -> pb.GradeResponse:
        """Returns the rewards that models give to answers."""
        relayed = jobs.RunGradeRequest(batch=request)
        return await self._relay(context, self._control.jobs.Grade, relayed, seconds=GRADE_SECONDS)

    async def Finish(self, request: pb.FinishRequest, context: Context) -> pb.FinishResponse:
        """Records the end of the attempt."""
        relayed = jobs.RunFinishRequest(finish=request)
        answer = await self._relay(context, self._control.jobs.Finish, relayed)
        reach("agent.finish_relayed")
        return answer


class RunnerServer:
    """Serves runners on a Unix socket; its folder keeps other users out."""

    def __init__(self, socket: Path, tokens: RunnerTokens, control: ControlPlane):
        self.address = f"unix://{socket}"
        self._socket = socket
        self._server = grpc.aio.server(options=PINGED_OPTIONS, maximum_concurrent_rpcs=500)
        rpc.add_RunnerServiceServicer_to_server(RunnerServicer(tokens, control), self._server)

    async def start(self) -> None:
        """Binds and serves; what an earlier life left of the socket is replaced."""
        self._socket.unlink(missing_ok=True)
        self._server.add_insecure_port(self.address)
        await self._server.start()
        # Runners may be other users; the folder keeps everybody else out.
        self._socket.chmod(0o666 if os.geteuid() == 0 else 0o600)

    async def stop(self) -> None:
        """Ends open calls at once; runners repeat them to the next life."""
        await self._server.stop(None)
