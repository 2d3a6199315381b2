"""`python -m windlass_agent.runner`: one attempt of a job, started by its agent."""

import argparse
import asyncio
import contextlib
import os
import shutil
import sys
from pathlib import Path
from typing import Literal

import aiohttp

from windlass.confinement import Bare, confinement
from windlass.core.killpoints import reach
from windlass.core.telemetry import configure_logging, logger
from windlass_agent.runner.protocol.link import AgentLink, CallRefused
from windlass_agent.runner.protocol.outcome import Outcome, OutcomeKind, Stopped, leaf, write_exit
from windlass_agent.runner.protocol.world import World
from windlass_agent.runner.reporting.reporter import LogOnlyReporter, Reporter
from windlass_agent.runner.reporting.spool import EventSpool
from windlass_agent.runner.supervisor.config import RunnerConfig
from windlass_agent.runner.supervisor.exit_analysis import CONSEQUENCE
from windlass_agent.runner.supervisor.job import AttemptRunner
from windlass_agent.runner.supervisor.signals import StopSignal, unless
from windlass_agent.runner.supervisor.spare import SpareTrainer

REFUSED_STATUS = 3
# What a shell says of a process that SIGTERM ended. With 0 a kubelet would forget that it evicted
# the pod, and call it a success.
STOPPED_STATUS = 143
_STATUSES = {OutcomeKind.SUCCEEDED: 0, OutcomeKind.FAILED: 1, OutcomeKind.STOPPED: STOPPED_STATUS}
_LAST_WORDS_SECONDS = 5.0
# Of several nodes, the one that made the training fail should be the first to have ended.
_PRECEDENCE_SECONDS = 10.0
_GPU = Path("/dev/nvidiactl")

_log = logger("runner")


def main(argv: list[str] | None = None) -> int:
    """Runs an attempt; 0 when it succeeded, 1 failed, 143 stopped, 3 when the agent refused it."""
    options = _parser().parse_args(argv)
    configure_logging()
    workdir: Path = options.workdir.resolve()
    workdir.mkdir(mode=0o700, parents=True, exist_ok=True)
    config = RunnerConfig(
        workdir=workdir,
        device=_device(options.device),
        environ=dict(os.environ),
        python=sys.executable,
        grace_seconds=options.grace,
        patience_seconds=options.patience,
        exit_message=options.exit_message,
        world=World.of(os.environ),
        pythons=_pythons(options.torchtune_python),
        confinement=confinement("preferred", nested=True) if options.confined else Bare(),
    )
    try:
        outcome = asyncio.run(_started(config, options))
    except Exception as error:
        if not isinstance(leaf(error), CallRefused):
            raise
        _log.warning("runner_refused", message=str(leaf(error)))
        return REFUSED_STATUS
    return _STATUSES[outcome.verdict] if outcome else 0


async def _started(config: RunnerConfig, options: argparse.Namespace) -> Outcome | None:
    """Runs the attempt; None when this is a spare that there never was an attempt for."""
    descriptor: int | None = options.token_fd
    spare: SpareTrainer | None = None
    if descriptor is None:
        file: Path = options.token_file
        link = AgentLink(options.agent, token=lambda: file.read_text().strip(), ca=options.agent_ca)
    else:
        if options.spare:
            spare = await SpareTrainer.start(config)
        token = await _read(descriptor)
        if options.spare and not token:
            return None
        link = AgentLink(options.agent, token=lambda: token, ca=options.agent_ca)
    return await _attempt(config, link, spare)


async def _read(descriptor: int) -> str:
    """Reads a pipe until its other end is closed."""
    reader = asyncio.StreamReader()
    file = os.fdopen(descriptor, "rb")
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), file)
    return (await reader.read()).decode().strip()


async def _attempt(config: RunnerConfig, link: AgentLink, spare: SpareTrainer | None) -> Outcome:
    stop = StopSignal()
    stop.install()
    spool = EventSpool(config.workdir / "spool.jsonl")
    # No limit in all, since a model may be large; a store that falls silent is left.
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=60)
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(spool.close)
        stack.push_async_callback(link.close)
        session = await stack.enter_async_context(aiohttp.ClientSession(timeout=timeout))
        reporter = (Reporter if config.world.leads else LogOnlyReporter)(link, spool)
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(reporter.run())
            job = AttemptRunner(
                config, link=link, reporter=reporter, session=session, stop=stop, spare=spare
            )
            outcome = await job.run()
            await asyncio.to_thread(_free, config.workdir)
            await _conclude(outcome, config, link=link, reporter=reporter, stop=stop)
            sending.cancel()
        return outcome


async def _conclude(
    outcome: Outcome, config: RunnerConfig, *, link: AgentLink, reporter: Reporter, stop: StopSignal
) -> None:
    """Writes the outcome to disk, then reports it; a second SIGTERM ends the wait."""
    speaks = _speaks(outcome, config.world)
    if outcome.verdict is OutcomeKind.FAILED:
        # To the attempt's log alone: the job has an event of its own for its failure.
        _log.error("attempt_failed", code=outcome.error_code, message=outcome.error_message)

    def leave(*, reported: bool) -> None:
        last = reporter.last_seq
        write_exit(
            config.workdir, outcome, last_seq=last, reported=reported, message=config.exit_message
        )

    if _is_consequence(outcome, config.world):
        with contextlib.suppress(Stopped):
            await unless(stop.requested, asyncio.sleep(_PRECEDENCE_SECONDS))
    leave(reported=not speaks)
    reach("runner.exit_left")

    async def tell() -> None:
        await reporter.flush()
        if speaks:
            await link.finish(outcome, last_seq=reporter.last_seq)

    try:
        if stop.forced.is_set():
            await asyncio.wait_for(tell(), _LAST_WORDS_SECONDS)
        else:
            await unless(stop.forced, tell())
    except (Stopped, TimeoutError):
        return
    reach("runner.finish_told")
    leave(reported=True)


def _speaks(outcome: Outcome, world: World) -> bool:
    """True if this node reports the job's outcome: not a follower, nor one that lost a peer."""
    return world.leads and not _is_consequence(outcome, world)


def _is_consequence(outcome: Outcome, world: World) -> bool:
    return world.nodes > 1 and outcome.error_code == CONSEQUENCE


def _free(workdir: Path) -> None:
    """Deletes large files, which also frees space for `exit.json` on a full disk."""
    for name in ("inputs", "dataset", "output", "scratch"):
        shutil.rmtree(workdir / name, ignore_errors=True)


def _device(asked: str) -> Literal["cpu", "cuda"]:
    if asked == "cpu" or (asked == "auto" and not _GPU.exists()):
        return "cpu"
    return "cuda"


def _pythons(torchtune: str) -> dict[str, str]:
    return {"torchtune": torchtune} if torchtune else {}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="windlass-runner", description=__doc__)
    parser.add_argument("--agent", required=True, help="gRPC address of the agent")
    parser.add_argument(
        "--agent-ca",
        type=Path,
        help="PEM file of the agent's CA; without it the connection is not encrypted",
    )
    parser.add_argument("--workdir", required=True, type=Path, help="folder of this attempt")
    token = parser.add_mutually_exclusive_group(required=True)
    token.add_argument("--token-fd", type=int, help="file descriptor to read the token from")
    token.add_argument("--token-file", type=Path)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument(
        "--grace", type=float, default=60.0, help="seconds a stopped trainer has to save its state"
    )
    parser.add_argument(
        "--patience",
        type=float,
        default=1800.0,
        help="seconds to retry an object store or a grader that does not answer",
    )
    parser.add_argument(
        "--torchtune-python",
        default=os.environ.get("WINDLASS_TORCHTUNE_PYTHON", ""),
        help="Python that runs TorchTune; default: this one",
    )
    parser.add_argument(
        "--confined",
        action="store_true",
        help="the runner is confined: confine its trainers as well",
    )
    parser.add_argument(
        "--spare", action="store_true", help="start a trainer, then wait for the token and its job"
    )
    parser.add_argument("--exit-message", type=Path, help="also write exit.json here, cut to fit")
    return parser


if __name__ == "__main__":
    sys.exit(main())
