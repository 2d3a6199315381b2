"""`python -m windlass_agent.keeper.host`: the launcher of a pod whose residents are processes."""

import argparse
import asyncio
import ctypes
import shutil
import signal
import sys
from pathlib import Path

from windlass.core.telemetry import configure_logging
from windlass_agent.folders import private_folder
from windlass_agent.keeper.host.census import Orphans
from windlass_agent.keeper.host.residents import PodResidents
from windlass_agent.keeper.link import KeeperLink

_PR_SET_CHILD_SUBREAPER = 36
_REAP_SECONDS = 1.0


def main(argv: list[str] | None = None) -> int:
    """Hosts residents until SIGTERM, and ends with the last of them."""
    options = _parser().parse_args(argv)
    configure_logging()
    if sys.platform == "linux":
        # As the first process of a pod's container is by itself.
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    # Not on uvloop, which knows no groups of processes.
    asyncio.run(_host(options))
    return 0


async def _host(options: argparse.Namespace) -> None:
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    # Whatever a former life of the container has left has no process any more.
    shutil.rmtree(options.folder, ignore_errors=True)
    residents = PodResidents(private_folder(options.folder), _keeper(options))
    link = KeeperLink(options.agent, token=options.token_file, authority=options.agent_ca)
    calling = asyncio.create_task(link.host(residents.reports, residents.take))
    reaping = asyncio.create_task(_reap(residents))
    waiting = asyncio.create_task(stopped.wait())
    try:
        await asyncio.wait({calling, reaping, waiting}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (calling, waiting):
            task.cancel()
        await residents.close()
        reaping.cancel()
        ended = await asyncio.gather(calling, reaping, waiting, return_exceptions=True)
        await link.close()
    for one in ended:
        if isinstance(one, Exception):
            raise one


def _keeper(options: argparse.Namespace) -> list[str]:
    """The program of keepers, which call the agent as this one does."""
    return [
        sys.executable, "-m", "windlass_agent.keeper",
        "--agent", options.agent,
        "--agent-ca", str(options.agent_ca),
        "--token-file", str(options.token_file),
    ]  # fmt: skip


async def _reap(residents: PodResidents) -> None:
    orphans = Orphans()
    while True:
        orphans.reap(residents.waited)
        await asyncio.sleep(_REAP_SECONDS)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="windlass-host", description=__doc__)
    parser.add_argument("--agent", required=True, help="gRPC address of the agent")
    parser.add_argument("--agent-ca", required=True, type=Path, help="PEM file of the agent's CA")
    parser.add_argument("--token-file", required=True, type=Path)
    parser.add_argument(
        "--folder", required=True, type=Path, help="each resident gets a folder below it"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
