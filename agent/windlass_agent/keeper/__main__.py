"""`python -m windlass_agent.keeper`: the container beside an engine's, in its pod."""

import argparse
import asyncio
import contextlib
import signal
import sys
from pathlib import Path

from aiohttp import web

from windlass.api.keeper.v1 import keeper_pb2 as pb
from windlass.core.telemetry import configure_logging, logger
from windlass_agent.download import SharedStore
from windlass_agent.engines.in_pods.kinds import NAMES, engine_in_pod
from windlass_agent.engines.in_pods.trainer import TRAINER
from windlass_agent.engines.metering import MEASURE_SECONDS
from windlass_agent.keeper.door import Door
from windlass_agent.keeper.engine_keeper import EngineKeeper
from windlass_agent.keeper.health import health
from windlass_agent.keeper.identity import DoorIdentity
from windlass_agent.keeper.leader import Leader
from windlass_agent.keeper.link import KeeperLink
from windlass_agent.keeper.trainer_door import TrainerDoor
from windlass_agent.loop import run as run_loop

# Of the load that a picker reads, which asks more often than an engine should be asked.
TOLD_SECONDS = 1.0

_log = logger("keeper")


def main(argv: list[str] | None = None) -> int:
    """Keeps an engine until SIGTERM, which comes once the engine's container has ended."""
    options = _parser().parse_args(argv)
    configure_logging()
    run_loop(_attend(options) if options.leader else _keep(options))
    return 0


async def _attend(options: argparse.Namespace) -> None:
    """Keeps a pod where nothing answers: it has no door, and so asks for no certificate."""
    stopped, keeper = _stopping(), _keeper(options)
    leader = Leader(options.leader, options.health_port)
    link = KeeperLink(options.agent, token=options.token_file, authority=options.agent_ca)

    def hear(order: pb.EngineOrder) -> None:
        if order.HasField("engine"):
            keeper.order(order.engine)

    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(link.close)
        await _listen(stack, health(keeper, leader.drained), options.health_port, tls=None)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(link.run(bytes, keeper, hear)),
                group.create_task(keeper.attend()),
                group.create_task(leader.follow()),
            ]
            await stopped.wait()
            for task in tasks:
                task.cancel()


async def _keep(options: argparse.Namespace) -> None:
    stopped, keeper = _stopping(), _keeper(options)
    make = TrainerDoor if options.engine == TRAINER else Door
    door = make(keeper, options.endpoint)
    identity = DoorIdentity(options.scratch, options.agent_ca)
    link = KeeperLink(
        options.agent,
        token=options.token_file,
        authority=options.agent_ca,
        resident=options.resident,
    )
    certified = asyncio.Event()

    def hear(order: pb.EngineOrder) -> None:
        if order.certificate:
            identity.take(order.certificate)
            certified.set()
        if order.HasField("engine"):
            keeper.order(order.engine)
        keeper.take_others(broken=order.broken, awaits_weights=order.awaits_weights)

    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(link.close)
        answers = health(keeper, door.drained, tells_load=options.tell_load)
        await _listen(stack, answers, options.health_port, tls=None)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(link.run(identity.request, keeper, hear)),
                group.create_task(keeper.run()),
            ]
            await _first(certified, stopped)
            if certified.is_set():
                await _open(stack, door, options.port, identity)
                _log.info("door_open", port=options.port)
            await stopped.wait()
            for task in tasks:
                task.cancel()


def _stopping() -> asyncio.Event:
    """An event that is set once the process should end."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    return stopped


def _keeper(options: argparse.Namespace) -> EngineKeeper:
    # It is steered alone: its own container starts it.
    kind = engine_in_pod(options.engine, Path(sys.executable))
    return EngineKeeper(
        kind,
        endpoint=options.endpoint,
        weights=options.weights,
        adapter_bytes=options.adapter_bytes,
        store=SharedStore(options.store, most=options.store_bytes) if options.store else None,
        measure_seconds=TOLD_SECONDS if options.tell_load else MEASURE_SECONDS,
    )


async def _first(*events: asyncio.Event) -> None:
    """Returns once one of them is set."""
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waits:
            one.cancel()


async def _open(
    stack: contextlib.AsyncExitStack, door: Door | TrainerDoor, port: int, identity: DoorIdentity
) -> None:
    if isinstance(door, Door):
        await _listen(stack, door.app(), port, tls=identity)
        return
    stack.push_async_callback(door.close)
    await door.open(port, identity.tls)


async def _listen(
    stack: contextlib.AsyncExitStack,
    app: web.Application,
    port: int,
    *,
    tls: DoorIdentity | None,
) -> None:
    # A client that leaves cancels its request, here and at the engine.
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    await web.TCPSite(runner, port=port, ssl_context=tls.tls if tls else None).start()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="windlass-keeper", description=__doc__)
    parser.add_argument("--agent", required=True, help="gRPC address of the agent")
    parser.add_argument("--agent-ca", required=True, type=Path, help="PEM file of the agent's CA")
    parser.add_argument("--token-file", required=True, type=Path)
    parser.add_argument("--engine", required=True, choices=(*NAMES, TRAINER))
    parser.add_argument("--endpoint", required=True, help="where the engine listens in the pod")
    parser.add_argument("--weights", required=True, type=Path, help="folder that both see")
    parser.add_argument("--adapter-bytes", required=True, type=int, help="of that folder at most")
    parser.add_argument("--store", type=Path, help="volume that pods share, for the weights")
    parser.add_argument("--store-bytes", type=int, default=0, help="of that volume at most")
    parser.add_argument("--scratch", required=True, type=Path, help="folder that none else sees")
    parser.add_argument(
        "--leader",
        default="",
        help="of an engine on several nodes: the host of its first pod, if this is another",
    )
    parser.add_argument(
        "--resident", default="", help="in a pod that hosts several: the workload that it is of"
    )
    parser.add_argument(
        "--tell-load", action="store_true", help="tell the engine's load at the health port"
    )
    parser.add_argument("--port", required=True, type=int, help="of the door")
    parser.add_argument("--health-port", required=True, type=int)
    return parser


if __name__ == "__main__":
    sys.exit(main())
