"""The agent inside `serve`: this machine as a cluster of its own, over the process's own socket."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import grpc

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.clusters.v1 import clusters_pb2_grpc as rpc
from windlass.confinement import confinement
from windlass.core import telemetry
from windlass.core.app import App
from windlass.core.backoff import Backoff
from windlass.core.rpc.auth import digest
from windlass_agent.agent import Agent, Fenced
from windlass_agent.control_plane.connection import ControlPlane
from windlass_agent.engines.registry import EnginePrograms
from windlass_agent.executors.process.allotment import ResourceRequest
from windlass_agent.executors.process.assembly import process_executor
from windlass_agent.folders import socket_folder, sole_agent, write_private
from windlass_agent.machine import look

log = telemetry.logger("embedded_agent")


async def build(app: App) -> None:
    """Registers the agent, which enrols itself at its first start.

    Raises NoConfinement where walls are required and cannot be made.
    """
    if app.settings.agent.confinement == "required":
        await asyncio.to_thread(confinement, "required")
    app.background("agent", partial(_run, app, app.settings.data_dir / "agent"))


async def _run(app: App, folder: Path) -> None:
    """A fenced agent stays down, and the server up: its operator unregistered the cluster."""
    with sole_agent(folder):
        path = folder / "credential"
        accepted = False
        while not accepted:
            credential = await _credential(app, folder, path)
            async with _agent(app, folder, credential) as agent:
                app.exposition.sample("agent", agent.measure)
                try:
                    await agent.run()
                except Fenced as fence:
                    accepted = agent.accepted.is_set()
                    log.error("embedded_agent_stopped", reason=fence.reason, known=accepted)
                    if fence.reason != "session_superseded":
                        # Unknown from the start means that the database is another one.
                        path.unlink(missing_ok=True)
                    accepted = accepted or fence.reason == "session_superseded"
        await asyncio.Event().wait()


@contextlib.asynccontextmanager
async def _agent(app: App, folder: Path, credential: str) -> AsyncIterator[Agent]:
    settings = app.settings
    control = ControlPlane(
        clusters=app.clients.address("clusters"),
        jobs=app.clients.address("jobs"),
        credential=credential,
        ca=settings.grpc.peer_ca,
    )
    changed = asyncio.Event()
    executor = process_executor(
        data=folder,
        control=control,
        changed=changed.set,
        machine=await asyncio.to_thread(look, settings.agent.gpus),
        slots=settings.agent.slots,
        engine_slots=settings.agent.engine_slots,
        engine_share=ResourceRequest(
            gpus=settings.agent.engine_gpus,
            cpus=settings.agent.engine_cpus,
            memory_bytes=settings.agent.engine_memory_bytes,
        ),
        drain_seconds=settings.jobs.drain_seconds,
        engine_drain_seconds=settings.agent.engine_drain_seconds,
        stop_on_close=True,
        torchtune_python=settings.agent.torchtune_python,
        programs=EnginePrograms(
            vllm_python=settings.agent.vllm_python,
            vllm_flags=settings.agent.vllm_flags,
            sglang_python=settings.agent.sglang_python,
            sglang_flags=settings.agent.sglang_flags,
            llama_server=settings.agent.llama_server,
        ),
        confinement=settings.agent.confinement,
        spare_trainers=settings.agent.spare_trainers,
        spare_idle_seconds=settings.agent.spare_idle_seconds,
        local_objects=app.objects.file,
        weights_folder=settings.tuning.publishing.root,
    )
    try:
        yield Agent(control, executor, changed, kind="process")
    finally:
        await control.close()


async def _credential(app: App, folder: Path, path: Path) -> str:
    """The credential that the agent shows; the control plane learns where its sockets lie in this
    life.
    """
    stub: rpc.ClustersInternalServiceAsyncStub = app.clients.stub(rpc.ClustersInternalServiceStub)
    known = path.read_text() if path.exists() else ""
    request = pb.EnrollLocalRequest(
        name=app.settings.agent.name,
        executor="process",
        run_folder=str(socket_folder(folder)),
        credential_digest=digest(known) if known else b"",
    )
    backoff = Backoff()
    while True:
        try:
            answer = await stub.EnrollLocal(request)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNAUTHENTICATED and known:
                # The agent hears why by itself.
                return known
            # In a process of its own the agent may be up before clusters is.
            log.info("enrolment_waiting", code=error.code().name)
            await backoff.pause()
            continue
        if known:
            return known
        write_private(path, answer.credential.encode())
        return answer.credential
