"""A small agent for the runner's tests.

RunnerService on a Unix socket, and a store of plain files behind real HTTP URLs (ranges,
PUT). It is written for these tests, so that the runner is seen from outside alone; the
product's own agent has tests of its own.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import grpc
from aiohttp import web

from windlass.api.models.v1 import models_pb2
from windlass.api.runner.v1 import runner_pb2 as pb
from windlass.api.runner.v1 import runner_pb2_grpc as services
from windlass.core.clock import now_ms
from windlass.core.errors import FailedPrecondition, to_metadata

Context = grpc.aio.ServicerContext[Any, Any]

TOKEN = "attempt-token"


@dataclass
class Artifact:
    """Files that a runner announced, and whether the announcement is complete."""

    kind: int
    step: int
    folder: Path
    manifest: models_pb2.Manifest
    # The last step whose measurements had come before.
    told: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    is_adapter: bool = False
    committed: bool = False

    @property
    def names(self) -> set[str]:
        return {entry.path for entry in self.manifest.files}

    @property
    def is_whole(self) -> bool:
        return all(self._holds(entry) for entry in self.manifest.files)

    def missing(self) -> list[models_pb2.ManifestEntry]:
        return [entry for entry in self.manifest.files if not self._holds(entry)]

    def _holds(self, entry: models_pb2.ManifestEntry) -> bool:
        path = self.folder / entry.path
        return path.exists() and hashlib.sha256(path.read_bytes()).digest() == entry.sha256


class RunnerAgent(services.RunnerServiceServicer):
    """Serves one attempt at a time; keeps what it was told across restarts."""

    def __init__(self, folder: Path) -> None:
        self.store = folder / "store"
        self.store.mkdir(parents=True)
        self.socket = folder / "agent.sock"
        self.assignment = pb.Assignment()
        self.expired: set[str] = set()
        self.ranges: dict[str, str] = {}
        # What happens to the next PUTs: `refuse`, `cut`.
        self.mishaps: list[str] = []
        self.events: dict[int, pb.RunEvent] = {}
        self.artifacts: dict[str, Artifact] = {}
        self.finish: pb.FinishRequest | None = None
        self.refusals: grpc.StatusCode | None = None
        # What models say of answers; a test sets it.
        self.judge: Callable[[pb.GradeRequest], pb.GradeResponse] | None = None
        self._asked = 0
        self._began_ms = 0

    async def start(self) -> None:
        """Serves the store and the socket."""
        app = web.Application(client_max_size=0)
        app.router.add_get("/{name:.+}", self._get)
        app.router.add_put("/{name:.+}", self._put)
        self._web = web.AppRunner(app)
        await self._web.setup()
        site = web.TCPSite(self._web, "127.0.0.1", 0)
        await site.start()
        host, port = self._web.addresses[0][:2]
        self._root = f"http://{host}:{port}"
        await self.listen()

    async def listen(self) -> None:
        """Serves the socket."""
        self.socket.unlink(missing_ok=True)
        self._server = grpc.aio.server()
        services.add_RunnerServiceServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{self.socket}")
        await self._server.start()

    async def leave(self) -> None:
        """Leaves the socket, as a killed agent does; the store keeps running."""
        await self._server.stop(None)

    async def stop(self) -> None:
        await self._server.stop(None)
        await self._web.cleanup()

    def begin_attempt(self) -> None:
        """Forgets what the last attempt said of itself, and keeps its artifacts."""
        self.events.clear()
        self.finish = None
        self.assignment.attempt += 1
        self._began_ms = now_ms()

    def add_file(self, path: Path, name: str) -> models_pb2.FileUrl:
        """Adds a file to the store under its path in the assignment; its URL is made later."""
        return models_pb2.FileUrl(
            path=name,
            url=str(path.relative_to(self.store)),
            bytes=path.stat().st_size,
            sha256=hashlib.sha256(path.read_bytes()).digest(),
        )

    def metrics(self) -> list[pb.StepMetrics]:
        return [e.metrics for _, e in sorted(self.events.items()) if e.HasField("metrics")]

    def values(self, name: str) -> list[float]:
        return [m.values[name] for m in self.metrics() if name in m.values]

    def of_kind(self, kind: int) -> list[Artifact]:
        return [a for a in self.artifacts.values() if a.kind == kind and a.committed]

    # RunnerService

    async def GetAssignment(
        self, request: pb.GetAssignmentRequest, context: Context
    ) -> pb.Assignment:
        await self._check(context)
        self._asked += 1
        answer = pb.Assignment()
        answer.CopyFrom(self.assignment)
        files = [*answer.model_files, *answer.resume.files, answer.training_file]
        companions = [file for each in answer.companions for file in each.files]
        if answer.HasField("evaluation"):
            files.append(answer.evaluation.file)
        for file in [*files, *companions, answer.validation_file]:
            if file.url:
                file.url = urljoin(f"{self._root}/", f"{file.url}?issue={self._asked}")
        if not self.assignment.HasField("validation_file"):
            answer.ClearField("validation_file")
        if not self.assignment.HasField("resume"):
            answer.ClearField("resume")
        return answer

    async def Report(self, request: pb.ReportRequest, context: Context) -> pb.ReportResponse:
        await self._check(context)
        for event in request.events:
            # What a killed runner had sent may be read after its attempt.
            if event.at_ms >= self._began_ms:
                self.events.setdefault(event.seq, event)
        return pb.ReportResponse(acknowledged=max(self.events, default=0))

    async def CreateArtifact(
        self, request: pb.CreateArtifactRequest, context: Context
    ) -> pb.CreateArtifactResponse:
        await self._check(context)
        name = f"artifact-{self.assignment.attempt}-{request.kind}-{request.step}"
        told = max((metrics.step for metrics in self.metrics()), default=0)
        artifact = self.artifacts.setdefault(
            name,
            Artifact(request.kind, request.step, self.store / name, request.manifest, told),
        )
        uploads = [
            models_pb2.FileUrl(path=entry.path, url=f"{self._root}/{name}/{entry.path}")
            for entry in artifact.missing()
        ]
        return pb.CreateArtifactResponse(artifact_id=name, uploads=uploads)

    async def CommitArtifact(
        self, request: pb.CommitArtifactRequest, context: Context
    ) -> pb.CommitArtifactResponse:
        await self._check(context)
        artifact = self.artifacts[request.artifact_id]
        if not artifact.is_whole:
            error = FailedPrecondition("a file is not there", reason="upload_incomplete")
            await context.abort(error.code, error.message, to_metadata(error))
        artifact.metrics = dict(request.metrics)
        artifact.is_adapter = request.is_adapter
        artifact.committed = True
        return pb.CommitArtifactResponse()

    async def Grade(self, request: pb.GradeRequest, context: Context) -> pb.GradeResponse:
        await self._check(context)
        assert self.judge is not None
        return self.judge(request)

    async def Finish(self, request: pb.FinishRequest, context: Context) -> pb.FinishResponse:
        await self._check(context)
        self.finish = request
        return pb.FinishResponse()

    async def _check(self, context: Context) -> None:
        if self.refusals is not None:
            await context.abort(self.refusals, "a newer attempt runs")
        if ("authorization", f"Bearer {TOKEN}") not in (context.invocation_metadata() or ()):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "no such attempt")

    # The store

    async def _get(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        if name in self.expired and request.query["issue"] == "1":
            raise web.HTTPForbidden
        if wanted := request.headers.get("Range"):
            self.ranges[name] = wanted
        return web.FileResponse(self.store / name)

    async def _put(self, request: web.Request) -> web.Response:
        path = self.store / request.match_info["name"]
        path.parent.mkdir(parents=True, exist_ok=True)
        mishap = self.mishaps.pop(0) if self.mishaps else ""
        if mishap == "refuse":
            raise web.HTTPServiceUnavailable
        if mishap == "cut":
            path.write_bytes(await request.content.readany())
            path.write_bytes(path.read_bytes()[:-1])
            return web.Response()
        with path.open("wb") as file:
            async for chunk in request.content.iter_any():
                file.write(chunk)
        return web.Response()
