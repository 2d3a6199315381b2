"""The front door in this process, over the real services; `inference` is a board of routes.

The board stands for the inference service, whose engines would need models and
processes: a test pins routes to it, and the engines behind are scripted HTTP servers.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import httpx
import orjson
import psycopg
from aiohttp import web
from openai import AsyncOpenAI, DefaultAsyncHttpxClient
from tests.support.clients.trust import trusted
from tests.support.processes.windlass import free_port
from tests.support.services.ended_apps import app_ended
from tests.support.waiting import until

from windlass import targets
from windlass.api.clusters.v1 import clusters_pb2
from windlass.api.inference.v1 import inference_pb2 as pb
from windlass.api.inference.v1 import inference_pb2_grpc as rpc
from windlass.core.app import App, runtime_dir
from windlass.core.config import Settings
from windlass.core.db import Database
from windlass.core.keyring import open_keyring
from windlass.core.rpc.following import BEAT_SECONDS
from windlass.inference_api.routes import ABORT
from windlass.serve import make_app, make_store

MODULES = (
    "users", "rbac", "files", "models", "clusters", "jobs", "usage", "sessions", "tuning",
    "gateway",
)  # fmt: skip
Handler = Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]


class RouteBoard(rpc.InferenceInternalServiceServicer):
    """Routes pinned by a test, for names that the models service has."""

    def __init__(self, database_url: str, renamed: Callable[[], None]) -> None:
        self.wanted: list[tuple[str, str]] = []
        self.loads: list[dict[str, int]] = []
        # It says nothing more, as a peer that hangs.
        self.silent = False
        # It takes no wishes, as a service that restarts.
        self.away = False
        self.on_want: Callable[[str, str], None] = lambda project_id, model: None
        self._url = database_url.replace("+psycopg", "")
        self._renamed = renamed
        self._routes: dict[str, pb.Route] = {}
        self._watchers: set[asyncio.Queue[pb.RoutesDelta]] = set()

    def pin(
        self,
        model: str,
        *addresses: str,
        project_id: str = "",
        error: str = "",
        waits_for: str = "",
        scores: bool = False,
        engine: str = "builtin",
        cache_salt: bool = False,
        max_concurrency: int = 0,
        aborts: bool = False,
        vision: bool = False,
    ) -> None:
        capabilities = clusters_pb2.EngineCapabilities(
            routes=["/v1/score", "/v1/rerank", *([ABORT] if aborts else [])],
            embeddings=engine == "builtin",
            cache_salt=cache_salt,
            max_concurrency=max_concurrency,
            vision=vision,
        )
        endpoints = [
            pb.Endpoint(engine_id=address, address=address, capabilities=capabilities)
            for address in addresses
        ]
        version_id = self._named(project_id, model, "scoring" if scores else "generation")
        route = pb.Route(
            version_id=version_id,
            endpoints=endpoints,
            error=error,
            waits_for=waits_for,
            engine=engine,
        )
        self._routes[version_id] = route
        for queue in self._watchers:
            queue.put_nowait(pb.RoutesDelta(routes=[route]))

    def unpin(self, model: str, project_id: str = "") -> None:
        """Deletes the name, and with it the route."""
        with psycopg.connect(self._url, autocommit=True) as connection:
            row = connection.execute(
                "UPDATE models_models SET deleted = true, revision = %s"
                " WHERE (project_id, name) = (%s, %s) RETURNING version_id",
                (self._revision(connection), project_id, model),
            ).fetchone()
        assert row
        del self._routes[row[0]]
        for queue in self._watchers:
            queue.put_nowait(pb.RoutesDelta(deleted=[row[0]]))
        self._renamed()

    def _named(self, project_id: str, model: str, task: str) -> str:
        """Returns the version of a name; creates it if there is none."""
        key = (project_id, model)
        with psycopg.connect(self._url, autocommit=True) as connection:
            row = connection.execute(
                "SELECT version_id FROM models_models WHERE (project_id, name) = (%s, %s)", key
            ).fetchone()
            if row:
                return str(row[0])
            version_id = f"mv-{project_id}-{model}"
            connection.execute(
                "INSERT INTO models_versions (id, organization_id, project_id, name, kind,"
                " manifest, digest, object_prefix, bytes, task, state, created_at)"
                " VALUES (%s, '', %s, %s, 'base', '[]', '', %s, 0, %s, 'ready', 0)",
                (version_id, *key, f"models/{version_id}/", task),
            )
            connection.execute(
                "INSERT INTO models_models (project_id, name, version_id, revision, created_at)"
                " VALUES (%(project)s, %(name)s, %(version)s, %(revision)s, %(revision)s)",
                {
                    "project": project_id,
                    "name": model,
                    "version": version_id,
                    "revision": self._revision(connection),
                },
            )
        self._renamed()
        return version_id

    @staticmethod
    def _revision(connection: psycopg.Connection) -> int:
        row = connection.execute(
            "INSERT INTO models_stream VALUES ('models', 1) ON CONFLICT (name)"
            " DO UPDATE SET revision = models_stream.revision + 1 RETURNING revision"
        ).fetchone()
        assert row
        return int(row[0])

    async def WatchRoutes(
        self, request: pb.WatchRoutesRequest, context: Any
    ) -> AsyncIterator[pb.RoutesDelta]:
        queue: asyncio.Queue[pb.RoutesDelta] = asyncio.Queue()
        self._watchers.add(queue)
        try:
            await until(lambda: not self.silent)
            yield pb.RoutesDelta(snapshot=True, routes=list(self._routes.values()))
            while True:
                try:
                    yield await asyncio.wait_for(queue.get(), BEAT_SECONDS)
                except TimeoutError:
                    if not self.silent:
                        yield pb.RoutesDelta()
        finally:
            self._watchers.discard(queue)

    async def WantModel(self, request: pb.WantModelRequest, context: Any) -> pb.WantModelResponse:
        self.wanted.append((request.project_id, request.model))
        if self.away:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "it restarts")
        self.on_want(request.project_id, request.model)
        return pb.WantModelResponse()

    async def ReportLoad(
        self, request: pb.ReportLoadRequest, context: Any
    ) -> pb.ReportLoadResponse:
        self.loads.append(dict(request.open_requests))
        return pb.ReportLoadResponse()

    async def HoldEngine(self, request: pb.HoldEngineRequest, context: Any) -> pb.HeldEngine:
        raise NotImplementedError

    async def ReleaseEngine(
        self, request: pb.ReleaseEngineRequest, context: Any
    ) -> pb.ReleaseEngineResponse:
        raise NotImplementedError

    async def ComputeInEngine(
        self, request: pb.ComputeInEngineRequest, context: Any
    ) -> pb.EngineComputation:
        raise NotImplementedError

    async def FindUses(self, request: pb.FindUsesRequest, context: Any) -> pb.FindUsesResponse:
        return pb.FindUsesResponse()


@dataclass
class Engine:
    """A scripted engine that records requests and answers with its handler."""

    address: str = ""
    handler: Handler | None = None
    requests: list[dict[str, Any]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    left: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        body = orjson.loads(raw)
        self.bodies.append(raw)
        self.requests.append(body)
        try:
            return await (self.handler or chat)(request, body)
        except (asyncio.CancelledError, ConnectionError):
            self.left.set()
            raise


@asynccontextmanager
async def running_engine(port: int = 0) -> AsyncIterator[Engine]:
    """Runs an engine until the end of the block."""
    engine = Engine()
    application = web.Application(client_max_size=2**26)
    application.router.add_post("/{path:.*}", engine.answer)
    runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    engine.address = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield engine
    finally:
        await runner.cleanup()


def usage(prompt: int, completion: int) -> dict[str, int]:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


def chunk(text: str, **extra: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    return {
        "id": "c1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [choice],
        **extra,
    }


def sse(event: Any) -> bytes:
    return b"data: " + orjson.dumps(event) + b"\n\n"


async def chat(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    """Answers as vLLM does: three words for 7 input tokens."""
    if not body.get("stream"):
        message = {"role": "assistant", "content": "one two three"}
        return web.json_response(
            {
                "id": "c1",
                "object": "chat.completion",
                "created": 1,
                "model": body["model"],
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": usage(7, 3),
            }
        )
    options = body.get("stream_options") or {}
    response = await begin(request)
    for number, word in enumerate(("one", " two", " three"), 1):
        extra = {"usage": usage(7, number)} if options.get("continuous_usage_stats") else {}
        await response.write(sse(chunk(word, **extra)))
    if options.get("include_usage"):
        await response.write(sse({**chunk(""), "choices": [], "usage": usage(7, 3)}))
    await response.write(b"data: [DONE]\n\n")
    return response


async def begin(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    return response


@dataclass
class Front:
    """A running gateway."""

    app: App
    url: str
    owner_key: str
    board: RouteBoard

    def openai(self, key: str | None = None, **options: Any) -> AsyncOpenAI:
        options.setdefault("http_client", DefaultAsyncHttpxClient(verify=trusted()))
        options.setdefault("timeout", 600)
        return AsyncOpenAI(
            base_url=f"{self.url}/v1", api_key=key or self.owner_key, max_retries=0, **options
        )

    def http(self, key: str | None = None, **headers: str) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=self.url,
            headers={"Authorization": f"Bearer {key or self.owner_key}", **headers},
            timeout=30,
            verify=trusted(),
        )


@asynccontextmanager
async def running_front(
    database_url: str,
    data: Path,
    modules: tuple[str, ...] = MODULES,
    *,
    instead: Mapping[str, tuple[object, Callable[[Any, Any], None]]] | None = None,
    **sections: Any,
) -> AsyncIterator[Front]:
    """Runs the gateway and the services behind it in this process.

    `instead` names services that a servicer of the test's own stands for. No board stands for
    `inference` where that is one of the modules.
    """
    port = sections.setdefault("http", {}).setdefault("port", free_port())
    settings = Settings(data_dir=data, **sections)
    data.mkdir(parents=True, exist_ok=True, mode=0o700)
    database = Database(database_url, pool_size=8)
    keyring = await open_keyring(settings, database)
    objects = make_store(settings, keyring)
    socket = runtime_dir(data) / "front.sock"
    app = make_app(
        settings,
        tuple(dict.fromkeys((*modules, *(instead or {}), "inference"))),
        database=database,
        keyring=keyring,
        objects=objects,
        url=database_url,
        socket=socket,
    )
    await targets.build(app, modules)
    board = RouteBoard(database_url, lambda: app.wake.touch("models"))
    if "inference" not in modules:
        app.serve(board, rpc.add_InferenceInternalServiceServicer_to_server)
    for servicer, register in (instead or {}).values():
        app.serve(servicer, register)
    stop = asyncio.Event()
    running = asyncio.create_task(app.run(stop, socket))
    try:
        scheme = "https" if settings.http.tls.enabled else "http"
        url = f"{scheme}://127.0.0.1:{port}"
        await _answering(url, running)
        yield Front(app, url, (data / "owner.key").read_text().strip(), board)
    finally:
        stop.set()
        await running
        await objects.close()
        await database.close()
        app_ended()


async def _answering(url: str, running: asyncio.Task[None]) -> None:
    async with httpx.AsyncClient(verify=trusted()) as client:

        async def ready() -> bool:
            if running.done():
                await running
            with suppress(httpx.TransportError):
                return (await client.get(f"{url}/readyz")).status_code == 200
            return False

        await until(ready)
