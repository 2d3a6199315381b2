"""The composition root of `windlass serve`: resources, kernel, modules, life."""

import asyncio
import os
import signal
from collections.abc import Callable, Collection
from contextlib import AsyncExitStack
from pathlib import Path

import grpc

from windlass import targets
from windlass.api.clusters.v1 import clusters_pb2, clusters_pb2_grpc
from windlass.api.rbac.v1 import rbac_pb2_grpc
from windlass.api.users.v1 import users_pb2_grpc
from windlass.audit import AuditQueue
from windlass.core import clock, telemetry
from windlass.core.app import App, runtime_dir
from windlass.core.config import Settings
from windlass.core.config.check import Finding, check, check_files
from windlass.core.db import Database
from windlass.core.db.waiting import DatabaseUnavailable, wait_for_database
from windlass.core.db.wake import Wake
from windlass.core.errors import from_rpc
from windlass.core.keyring import Keyring, KeyringError, open_keyring
from windlass.core.objects import ObjectStore, SealedStore, open_store
from windlass.core.rpc.auth import AgentIdentity
from windlass.core.rpc.clients import Clients
from windlass.core.rpc.gate import ControlPlaneGate
from windlass.core.rpc.interceptor import Boundary
from windlass.core.rpc.local import LocalServices
from windlass.core.rpc.server import Server
from windlass.core.rpc.tokens import TokenAuthority
from windlass.embedded_postgres import EmbeddedPostgres
from windlass.migrations import SchemaError, check_schema, migrate
from windlass.models.presets import check_presets
from windlass.object_keys import UsersObjectKeys
from windlass.tuning_api.trainers.making import check_trainer
from windlass.tunnel.chunks import STREAM_CODECS
from windlass.tunnel.frames import FRAMES_CODECS

log = telemetry.logger("serve")


class StartupError(Exception):
    """The process cannot start; the message says what to change."""


async def serve(
    settings: Settings,
    *,
    stop: asyncio.Event | None = None,
    on_ready: Callable[[], object] | None = None,
) -> None:
    """Runs the targets of `settings` until a signal, `stop`, or the failure of a part.

    Raises StartupError when the configuration cannot work.
    """
    modules = _modules(settings)
    stop, hurry = stop or asyncio.Event(), asyncio.Event()
    _on_signals(stop, hurry)
    # Under root the database has a user of its own, who must pass; what lies inside is private.
    settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o711 if os.geteuid() == 0 else 0o700)
    async with AsyncExitStack() as stack:
        url = await _database_url(settings, stack)
        await _prepare(settings, url)
        database = Database(url, pool_size=settings.database.pool_size)
        stack.push_async_callback(database.close)
        await clock.synchronize(database)
        try:
            keyring = await open_keyring(settings, database)
        except KeyringError as error:
            raise StartupError(str(error)) from error
        objects = make_store(settings, keyring)
        stack.push_async_callback(objects.close)
        socket = runtime_dir(settings.data_dir) / f"{socket_name(settings)}.sock"
        app = make_app(
            settings,
            modules,
            database=database,
            keyring=keyring,
            objects=objects,
            url=url,
            socket=socket,
        )
        await targets.build(app, modules)
        if on_ready is not None:
            app.on_ready(on_ready)
        await app.run(stop, socket, hurry=hurry)


def _on_signals(stop: asyncio.Event, hurry: asyncio.Event) -> None:
    """Sets `stop` with the first SIGTERM or SIGINT, and `hurry` with the second."""

    def receive() -> None:
        (hurry if stop.is_set() else stop).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, receive)


def findings(settings: Settings) -> list[Finding]:
    """Mistakes of a configuration, in itself and in the files that it names."""
    found = [*check(settings), *check_files(settings), *check_presets(settings)]
    return [*found, *check_trainer(settings.tuning)]


def _modules(settings: Settings) -> tuple[str, ...]:
    try:
        modules = targets.expand(settings.targets)
    except ValueError as error:
        raise StartupError(str(error)) from error
    errors = [finding for finding in findings(settings) if finding.level == "error"]
    if errors:
        lines = "\n".join(f"  {finding.key}: {finding.message}" for finding in errors)
        raise StartupError(f"the configuration is not valid:\n{lines}")
    if not settings.agent.enabled:
        modules = tuple(name for name in modules if name != "agent")
    if missing := targets.missing_peers(modules, settings.peers):
        module, need = missing[0]
        raise StartupError(f"{module} needs {need}: set peers.{need} or add the target {need}")
    return modules


async def _database_url(settings: Settings, stack: AsyncExitStack) -> str:
    if url := settings.database.driver_url:
        return url
    postgres = EmbeddedPostgres(settings.data_dir / "postgres")
    url = await postgres.start()
    stack.push_async_callback(postgres.stop)
    supervisor = asyncio.create_task(postgres.supervise(), name="postgres")

    async def end() -> None:
        supervisor.cancel()
        await asyncio.gather(supervisor, return_exceptions=True)

    stack.push_async_callback(end)
    return url


async def _prepare(settings: Settings, url: str) -> None:
    """Waits for the database, and brings its schema to what this release needs."""
    try:
        await wait_for_database(url, seconds=settings.database.wait_seconds)
        if settings.database.migrate:
            await asyncio.to_thread(migrate, url)
        else:
            await asyncio.to_thread(check_schema, url)
    except (DatabaseUnavailable, SchemaError) as error:
        raise StartupError(str(error)) from error


def make_store(settings: Settings, keyring: Keyring) -> ObjectStore:
    """Return the object store that the configuration names."""
    return open_store(
        settings.objects,
        root=settings.data_dir / "objects",
        public_url=settings.public_url,
        signing_secret=keyring.derive("object URLs"),
    )


def socket_name(settings: Settings) -> str:
    """Returns a name for each set of targets, so that several processes share a data folder."""
    return "windlass" if settings.targets == ["all"] else "-".join(sorted(settings.targets))[:40]


def kind_of(modules: Collection[str]) -> str:
    """The kind of a process's tokens: a gateway's admit to all that others' do."""
    return next((kind for kind in ("gateway", "tuning") if kind in modules), "service")


def make_app(
    settings: Settings,
    modules: tuple[str, ...],
    *,
    database: Database,
    keyring: Keyring,
    objects: ObjectStore,
    url: str,
    socket: Path,
) -> App:
    """The kernel of a process, before its modules are built."""
    tokens = TokenAuthority(database, kind=kind_of(modules), name=socket.stem)
    services = [name for name in modules if targets.MODULES[name].service]

    async def authenticate_agent(digest: bytes) -> AgentIdentity:
        stub = clients.stub(clusters_pb2_grpc.ClustersInternalServiceStub)
        try:
            found = await stub.AuthenticateAgent(
                clusters_pb2.AuthenticateAgentRequest(digest=digest)
            )
        except grpc.aio.AioRpcError as error:
            raise from_rpc(error) from error
        return AgentIdentity(found.cluster_id, found.name, digest, found.expires_at)

    audit = AuditQueue(
        lambda: clients.stub(rbac_pb2_grpc.RbacInternalServiceStub),
        settings.data_dir / "spool" / "audit",
    )
    gate = ControlPlaneGate(tokens, authenticate_agent)
    boundary = Boundary(gate, audit, stream_codecs={**STREAM_CODECS, **FRAMES_CODECS})
    local = LocalServices(boundary)
    clients = Clients(
        own_address=f"unix:{socket}",
        own_services=services,
        peers=settings.peers,
        service_token=tokens.sign_service,
        ca=settings.grpc.peer_ca,
        local=local,
    )
    app = App(
        settings=settings,
        services=services,
        database=database,
        keyring=keyring,
        objects=SealedStore(
            objects,
            UsersObjectKeys(lambda: clients.stub(users_pb2_grpc.UsersInternalServiceStub)),
            public_url=settings.public_url,
            secret=keyring.derive("sealed object URLs"),
        ),
        tokens=tokens,
        wake=Wake(url),
        server=Server(
            [boundary],
            max_concurrent=2000 + settings.sessions.max_connections,
            local=local,
        ),
        clients=clients,
        audit=audit,
    )
    if "rbac" in services or "rbac" in settings.peers:
        app.background("audit", audit.run)
        app.exposition.sample("audit", audit.shipper.measure)
    return app
