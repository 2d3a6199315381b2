"""`windlass-agent`: the agent as a process of its own."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import grpc
import typer

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.core import telemetry
from windlass.core.errors import from_rpc
from windlass.core.operations import Exposition, Operations
from windlass_agent.agent import Agent, Controller, Fenced
from windlass_agent.config import AgentSettings
from windlass_agent.control_plane.connection import ControlPlane, enroll
from windlass_agent.control_plane.credentials import (
    AgentCredentialStore,
    FileCredentials,
    Renewal,
    first_credential,
)
from windlass_agent.control_plane.lease import ControlPlaneLease
from windlass_agent.engines.registry import EnginePrograms
from windlass_agent.executors.port import Executor
from windlass_agent.executors.process.allotment import ResourceRequest
from windlass_agent.executors.process.assembly import process_executor
from windlass_agent.executors.process.jobs.runners import RUNNER_COMMAND
from windlass_agent.folders import sole_agent
from windlass_agent.loop import run as run_loop
from windlass_agent.machine import look
from windlass_agent.stopping import run_until_stopped
from windlass_agent.tunnel.direct import MachineDoor
from windlass_agent.tunnel.open_connections import OpenConnections
from windlass_agent.tunnel.workloads import WorkloadAccess

cli = typer.Typer(add_completion=False)


class AgentStartupError(Exception):
    """The agent cannot start; the message says what to change."""


@cli.command()
def run(
    control_plane: Annotated[
        str, typer.Option(help="Address of the control plane: grpcs://host:port or unix:///path.")
    ] = "",
    registration_key_file: Annotated[
        Path | None, typer.Option(help="File of the registration key, for the first start.")
    ] = None,
    credential_file: Annotated[
        Path | None, typer.Option(help="File of the agent's credential. Default: under --data.")
    ] = None,
    ca_file: Annotated[
        Path | None, typer.Option(help="PEM file of the CA of the control plane.")
    ] = None,
    executor: Annotated[Literal["process", "kubernetes"] | None, typer.Option()] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of the agent's state.")] = None,
    slots: Annotated[int | None, typer.Option(help="Jobs that may run at once.")] = None,
    engine_slots: Annotated[int | None, typer.Option(help="Engines that may run at once.")] = None,
    stop_jobs_on_exit: Annotated[bool | None, typer.Option()] = None,
    torchtune_python: Annotated[
        Path | None, typer.Option(help="Python with the extra `torchtune`. Default: this one.")
    ] = None,
    vllm_python: Annotated[
        Path | None, typer.Option(help="Python with vLLM, for engines of kind `vllm`.")
    ] = None,
    vllm_flag: Annotated[
        list[str] | None, typer.Option(help="Flag of vLLM beside ours; may be repeated.")
    ] = None,
    sglang_python: Annotated[
        Path | None, typer.Option(help="Python with SGLang, for engines of kind `sglang`.")
    ] = None,
    sglang_flag: Annotated[
        list[str] | None, typer.Option(help="Flag of SGLang beside ours; may be repeated.")
    ] = None,
    llama_server: Annotated[
        Path | None, typer.Option(help="llama.cpp's server, for engines of kind `llamacpp`.")
    ] = None,
    spare_trainers: Annotated[
        int | None, typer.Option(help="Trainers kept loaded for the next job after the first.")
    ] = None,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="Kubeconfig. Default: the cluster of this pod.")
    ] = None,
    cluster_file: Annotated[
        Path | None, typer.Option(help="YAML file of the cluster's settings.")
    ] = None,
    runner_port: Annotated[
        int | None, typer.Option(help="Port that runners in pods connect to.")
    ] = None,
) -> None:
    """Runs the workloads of one cluster. Every option is also WINDLASS_AGENT_<NAME>."""
    flags: dict[str, Any] = {
        "control_plane": control_plane or None,
        "registration_key_file": registration_key_file,
        "credential_file": credential_file,
        "ca_file": ca_file,
        "executor": executor,
        "data_dir": data,
        "slots": slots,
        "engine_slots": engine_slots,
        "stop_jobs_on_exit": stop_jobs_on_exit,
        "torchtune_python": torchtune_python,
        "vllm_python": vllm_python,
        "vllm_flags": vllm_flag or None,
        "sglang_python": sglang_python,
        "sglang_flags": sglang_flag or None,
        "llama_server": llama_server,
        "spare_trainers": spare_trainers,
        "kubeconfig": kubeconfig,
        "cluster_file": cluster_file,
        "runner_port": runner_port,
    }
    settings = AgentSettings(**{name: value for name, value in flags.items() if value is not None})
    telemetry.configure_logging(level=settings.log_level)
    try:
        run_loop(run_agent(settings))
    except (AgentStartupError, Fenced, ValueError, OSError) as error:
        typer.echo(f"windlass-agent: {error}", err=True)
        raise typer.Exit(1) from error


async def run_agent(
    settings: AgentSettings, *, runner_command: Sequence[str] = RUNNER_COMMAND
) -> None:
    """Runs until SIGTERM; raises AgentStartupError, or Fenced when it must not run any more."""
    if not settings.control_plane:
        raise AgentStartupError("the control plane's address is required: --control-plane")
    async with contextlib.AsyncExitStack() as stack:
        try:
            stack.enter_context(sole_agent(settings.data_dir))
        except BlockingIOError:
            raise AgentStartupError(
                f"another agent uses {settings.data_dir}: stop it, or pass another --data"
            ) from None
        store = await stack.enter_async_context(_store(settings))
        try:
            await _serve(settings, store, runner_command)
        except Fenced as fence:
            if fence.reason == "cluster_unregistered":
                # It opens nothing any more: the next start needs a registration key.
                await store.forget()
            raise


async def _serve(
    settings: AgentSettings, store: AgentCredentialStore, runner_command: Sequence[str]
) -> None:
    enrolment = partial(_enroll, settings)
    credential = await first_credential(store, enrolment)
    settings.cluster_id = settings.cluster_id or credential.cluster_id
    if settings.executor == "kubernetes" and not settings.cluster_id:
        raise AgentStartupError("the cluster's id is unknown: set WINDLASS_AGENT_CLUSTER_ID")
    control = ControlPlane(
        clusters=settings.control_plane,
        jobs=settings.control_plane,
        credential=credential.secret,
        ca=settings.ca_file,
    )
    changed, requests = asyncio.Event(), OpenConnections()
    try:
        parts = _parts(settings, control, changed, runner_command, requests)
        async with parts as (executor, controller):
            agent = Agent(
                control,
                executor,
                changed,
                kind=settings.executor,
                lease=ControlPlaneLease(settings.data_dir / "contact.json"),
                controller=controller,
                renewal=Renewal(control, store, enrolment),
            )
            async with _operations(settings, agent):
                await run_until_stopped(agent, requests, seconds=settings.exit_drain_seconds)
    finally:
        await control.close()


@contextlib.asynccontextmanager
async def _operations(settings: AgentSettings, agent: Agent) -> AsyncIterator[None]:
    """The listener of health and metrics; raises OSError for a taken port."""
    exposition = Exposition()
    exposition.sample("agent", agent.measure)
    operations = Operations(agent.readiness, exposition)
    try:
        if settings.operations_listen:
            await operations.start(settings.operations_listen, settings.data_dir / "operations")
        yield
    finally:
        await operations.stop()


@contextlib.asynccontextmanager
async def _store(settings: AgentSettings) -> AsyncIterator[AgentCredentialStore]:
    if settings.executor == "kubernetes" and settings.credential_secret:
        from windlass_agent.kubernetes_agent import secret_store

        async with secret_store(settings) as store:
            yield store
        return
    yield FileCredentials(settings.credential_file or settings.data_dir / "credential")


@contextlib.asynccontextmanager
async def _parts(
    settings: AgentSettings,
    control: ControlPlane,
    changed: asyncio.Event,
    runner_command: Sequence[str],
    requests: OpenConnections,
) -> AsyncIterator[tuple[Executor, Controller | None]]:
    if settings.executor == "kubernetes":
        # Its libraries are no part of a laptop's agent.
        from windlass_agent.kubernetes_agent import kubernetes_parts

        async with kubernetes_parts(settings, control, changed.set, requests) as parts:
            yield parts
        return
    async with _door(settings) as (door, direct):
        executor = await _process_executor(settings, control, changed, runner_command, direct)
        yield executor, WorkloadAccess(control, executor, door, requests)


@contextlib.asynccontextmanager
async def _door(
    settings: AgentSettings,
) -> AsyncIterator[tuple[MachineDoor | None, pb.DirectEndpoint | None]]:
    """The door for gateways that come directly, and what to tell of it; raises OSError."""
    if not settings.engine_listener:
        yield None, None
        return
    door = MachineDoor(settings.engine_listener, settings.engine_address)
    try:
        yield door, await door.open()
    finally:
        await door.close()


async def _process_executor(
    settings: AgentSettings,
    control: ControlPlane,
    changed: asyncio.Event,
    runner_command: Sequence[str],
    direct: pb.DirectEndpoint | None,
) -> Executor:
    return process_executor(
        data=settings.data_dir,
        control=control,
        changed=changed.set,
        direct=direct,
        machine=await asyncio.to_thread(look, settings.gpus),
        slots=settings.slots,
        engine_slots=settings.engine_slots,
        engine_share=ResourceRequest(
            gpus=settings.engine_gpus,
            cpus=settings.engine_cpus,
            memory_bytes=settings.engine_memory_bytes,
        ),
        drain_seconds=settings.drain_seconds,
        engine_drain_seconds=settings.engine_drain_seconds,
        stop_on_close=settings.stop_jobs_on_exit,
        runner_command=runner_command,
        torchtune_python=settings.torchtune_python,
        programs=EnginePrograms(
            vllm_python=settings.vllm_python,
            vllm_flags=settings.vllm_flags,
            sglang_python=settings.sglang_python,
            sglang_flags=settings.sglang_flags,
            llama_server=settings.llama_server,
        ),
        confinement=settings.confinement,
        spare_trainers=settings.spare_trainers,
        spare_idle_seconds=settings.spare_idle_seconds,
        weights_folder=settings.weights_folder,
    )


async def _enroll(settings: AgentSettings) -> pb.EnrollResponse:
    """Spends the registration key; raises AgentStartupError."""
    if settings.registration_key_file is None:
        raise AgentStartupError("no valid credential: pass --registration-key-file")
    key = settings.registration_key_file.read_text().strip()
    try:
        return await enroll(settings.control_plane, key, ca=settings.ca_file)
    except grpc.aio.AioRpcError as error:
        raise AgentStartupError(f"enrolment failed: {from_rpc(error).message}") from error


def main() -> None:
    """The entry point of the command."""
    cli()


if __name__ == "__main__":
    sys.exit(cli())
