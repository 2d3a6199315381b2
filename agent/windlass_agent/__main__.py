"""`windlass-agent`: the agent as a process of its own."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import grpc
import typer

from windlass.core import telemetry
from windlass.core.errors import from_rpc
from windlass_agent.agent import Agent, Fenced
from windlass_agent.config import AgentSettings
from windlass_agent.control import ControlPlane, enroll
from windlass_agent.executors.process.assembly import process_executor
from windlass_agent.executors.process.attempt import RUNNER_COMMAND
from windlass_agent.folders import sole_agent, write_private

cli = typer.Typer(add_completion=False)


class StartupError(Exception):
    """The agent cannot start; the message says what to change."""


@cli.command()
def run(
    control_plane: Annotated[str, typer.Option(help="grpcs://host:port or unix:///path")] = "",
    registration_key_file: Annotated[Path | None, typer.Option(help="For the first start.")] = None,
    credential_file: Annotated[Path | None, typer.Option(help="Default: under --data.")] = None,
    ca_file: Annotated[Path | None, typer.Option(help="PEM of the server's authority.")] = None,
    executor: Annotated[Literal["process"] | None, typer.Option()] = None,
    data: Annotated[Path | None, typer.Option(help="What the agent remembers.")] = None,
    slots: Annotated[int | None, typer.Option(help="Jobs at once.")] = None,
    engine_slots: Annotated[int | None, typer.Option(help="Engines at once.")] = None,
    stop_jobs_on_exit: Annotated[bool | None, typer.Option()] = None,
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
    }
    settings = AgentSettings(**{name: value for name, value in flags.items() if value is not None})
    telemetry.configure_logging(level=settings.log_level)
    try:
        asyncio.run(run_agent(settings))
    except (StartupError, Fenced, ValueError, OSError) as error:
        typer.echo(f"windlass-agent: {error}", err=True)
        raise typer.Exit(1) from error


async def run_agent(
    settings: AgentSettings, *, runner_command: Sequence[str] = RUNNER_COMMAND
) -> None:
    """Until SIGTERM; raises StartupError, or Fenced when it must not run any more."""
    if not settings.control_plane:
        raise StartupError("say where the control plane is: --control-plane")
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(sole_agent(settings.data_dir))
        except BlockingIOError:
            raise StartupError(f"another agent uses {settings.data_dir}") from None
        credential = await _credential(settings)
        control = ControlPlane(
            clusters=settings.control_plane,
            jobs=settings.control_plane,
            credential=credential,
            ca=settings.ca_file,
        )
        changed = asyncio.Event()
        executor = process_executor(
            data=settings.data_dir,
            control=control,
            changed=changed.set,
            slots=settings.slots,
            engine_slots=settings.engine_slots,
            drain_seconds=settings.drain_seconds,
            stop_on_close=settings.stop_jobs_on_exit,
            runner_command=runner_command,
        )
        try:
            await _until_signal(Agent(control, executor, changed, kind=settings.executor))
        finally:
            await control.close()


async def _until_signal(agent: Agent) -> None:
    loop, work = asyncio.get_running_loop(), asyncio.create_task(agent.run())
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, work.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await work


async def _credential(settings: AgentSettings) -> str:
    """The stored credential, or one for the registration key; raises StartupError."""
    path = settings.credential_file or settings.data_dir / "credential"
    if path.exists():
        return path.read_text().strip()
    if settings.registration_key_file is None:
        raise StartupError(f"no credential at {path}: give --registration-key-file")
    key = settings.registration_key_file.read_text().strip()
    try:
        credential = await enroll(settings.control_plane, key, ca=settings.ca_file)
    except grpc.aio.AioRpcError as error:
        raise StartupError(f"enrolment failed: {from_rpc(error).message}") from error
    write_private(path, credential.encode())
    return credential


def main() -> None:
    """The entry point of the command."""
    cli()


if __name__ == "__main__":
    sys.exit(cli())
