"""The services in this process: real gRPC, Postgres and object store; no gateway."""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from tests.support.agents.wire_agent import WireAgent
from tests.support.clients.trust import trusted
from tests.support.processes.windlass import free_port
from tests.support.waiting import until

from windlass import targets
from windlass.api.inference.v1 import inference_pb2_grpc
from windlass.api.models.v1 import models_pb2 as pb
from windlass.api.models.v1 import models_pb2_grpc
from windlass.core.app import App, runtime_dir
from windlass.core.config import Settings
from windlass.core.db import Database
from windlass.core.keyring import open_keyring
from windlass.core.objects import ObjectRoutes, ServedStore
from windlass.core.rpc.auth import Principal
from windlass.core.rpc.model_scope import ModelScope
from windlass.core.rpc.tokens import TokenAuthority
from windlass.serve import make_app, make_store

SERVICES = ("users", "files", "models", "clusters", "jobs", "inference", "usage", "sessions")
ALL = frozenset({"models.read", "models.write", "engines.train"})


@dataclass
class Platform:
    """A running platform."""

    app: App
    gateway: TokenAuthority
    agents: list[WireAgent] = field(default_factory=list)

    async def live_cluster(self, name: str = "east", **options: Any) -> WireAgent:
        """Yields a cluster whose agent is the test."""
        self.agents.append(await WireAgent.join(self.app, name, **options))
        return self.agents[-1]

    def tenant(
        self,
        project: str = "proj-a",
        organization: str = "",
        *,
        platform: bool = False,
        models: tuple[str, ...] = (),
    ) -> dict[str, Any]:
        """Returns the metadata of a tenant's call; each project has an organization by default.

        `models` are those that the caller's key is narrowed to.
        """
        principal = Principal(
            organization or f"org-of-{project}",
            project,
            permissions=ALL | ({"platform.write"} if platform else set()),
            models=ModelScope.of(models),
        )
        return {"metadata": (("windlass-principal", self.gateway.sign_principal(principal)),)}

    @property
    def models(self) -> models_pb2_grpc.ModelsServiceAsyncStub:
        return self.app.clients.stub(models_pb2_grpc.ModelsServiceStub)

    @property
    def models_internal(self) -> models_pb2_grpc.ModelsInternalServiceAsyncStub:
        return self.app.clients.stub(models_pb2_grpc.ModelsInternalServiceStub)

    @property
    def inference(self) -> inference_pb2_grpc.InferenceServiceAsyncStub:
        return self.app.clients.stub(inference_pb2_grpc.InferenceServiceStub)

    @property
    def inference_internal(self) -> inference_pb2_grpc.InferenceInternalServiceAsyncStub:
        return self.app.clients.stub(inference_pb2_grpc.InferenceInternalServiceStub)

    async def import_model(
        self, name: str, files: Mapping[str, bytes], *, is_global: bool = False, **caller: Any
    ) -> pb.Model:
        """Imports a model as a client does."""
        request = pb.CreateImportRequest(id=name, manifest=manifest(files), is_global=is_global)
        started = await self.models.CreateImport(request, **caller)
        await upload(started.uploads, files)
        return await self.models.CompleteImport(
            pb.CompleteImportRequest(import_id=started.import_id), **caller
        )

    async def register_adapter(
        self,
        name: str,
        base: pb.Model,
        files: Mapping[str, bytes],
        *,
        project: str = "proj-a",
        task: "pb.ModelTask.ValueType" = pb.MODEL_TASK_UNSPECIFIED,
        source: str = "",
        organization: str = "",
    ) -> pb.Model:
        """Registers an adapter as jobs does after a runner has uploaded it.

        Another `source` than the name is for what has the name after another.
        """
        source = source or name
        prefix = f"jobs/{hashlib.sha256(source.encode()).hexdigest()[:12]}/1/"
        for path, content in files.items():
            await self.app.objects.put(prefix + path, _once(content))
        return await self.models_internal.RegisterModel(
            pb.RegisterModelRequest(
                id=name,
                organization_id=organization or f"org-of-{project}",
                project_id=project,
                kind=pb.MODEL_KIND_ADAPTER,
                base_version_id=base.version_id,
                object_prefix=prefix,
                manifest=manifest(files),
                job_id="ftjob-1",
                source=source,
                task=task,
            )
        )


def manifest(files: Mapping[str, bytes]) -> pb.Manifest:
    """Returns the promise of some files."""
    return pb.Manifest(
        files=[
            pb.ManifestEntry(path=path, bytes=len(content), sha256=hashlib.sha256(content).digest())
            for path, content in files.items()
        ]
    )


def folder_files(folder: Path) -> dict[str, bytes]:
    """Returns the files of a model folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


async def upload(uploads: Sequence[pb.FileUrl], files: Mapping[str, bytes]) -> None:
    """Uploads each file to its promised URL."""
    async with httpx.AsyncClient(verify=trusted()) as http:
        for target in uploads:
            answer = await http.put(target.url, content=files[target.path])
            answer.raise_for_status()


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content


@asynccontextmanager
async def running_platform(
    url: str, data: Path, *, services: Sequence[str] = SERVICES, settings: Settings | None = None
) -> AsyncIterator[Platform]:
    """Serves until the end of the block; raises what failed in it."""
    settings = settings or Settings()
    settings.data_dir = data
    settings.http.port = settings.http.port if settings.http.public_url else free_port()
    data.mkdir(parents=True, exist_ok=True)
    database = Database(url)
    keyring = await open_keyring(settings, database)
    objects = make_store(settings, keyring)
    gateway = TokenAuthority(database, kind="gateway", name="gateway")
    await gateway.rotate()
    socket = runtime_dir(data) / "windlass.sock"
    app = make_app(
        settings, tuple(services), database=database, keyring=keyring, objects=objects, url=url,
        socket=socket,
    )  # fmt: skip
    await targets.build(app, services)
    stop = asyncio.Event()
    async with _object_server(app.objects, settings.http.port):
        running = asyncio.create_task(app.run(stop, socket))
        ready = asyncio.create_task(app.ready.wait())
        await asyncio.wait({running, ready}, return_when=asyncio.FIRST_COMPLETED)
        platform = Platform(app, gateway)
        try:
            yield platform
        finally:
            for agent in platform.agents:
                await agent.leave()
            stop.set()
            await running
            await database.close()
            await objects.close()


@asynccontextmanager
async def _object_server(objects: ServedStore, port: int) -> AsyncIterator[None]:
    config = uvicorn.Config(ObjectRoutes(objects), port=port, log_config=None, lifespan="off")
    server = uvicorn.Server(config)
    # The test's own loop keeps its signals.
    quiet: Any = server
    quiet.capture_signals = contextlib.nullcontext
    serving = asyncio.create_task(server.serve())
    await until(lambda: server.started or serving.done())
    assert not serving.done()
    try:
        yield
    finally:
        server.should_exit = True
        await serving
