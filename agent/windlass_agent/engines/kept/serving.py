"""The life of a keeper: it listens while its engine answers, and ends with it."""

import argparse
import asyncio
import contextlib
import signal
from pathlib import Path

from aiohttp import web

from windlass.core.telemetry import logger
from windlass_agent.engines.endpoint import SocketAddress
from windlass_agent.engines.kept.engine import KeptEngine, KeptFailure

GRACE_SECONDS = 5.0
_log = logger("engine")


def add_address(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `SocketAddress`."""
    parser.add_argument("--uds", type=Path, help="Unix socket to listen on, or")
    parser.add_argument("--host", default="", help="the address, with")
    parser.add_argument("--port", type=int, default=0, help="the port to listen on")


def address_of(arguments: argparse.Namespace) -> SocketAddress:
    """The address in parsed arguments; raises KeptFailure for none."""
    if arguments.uds is None and not (arguments.host and arguments.port):
        raise KeptFailure("there is no address to listen at")
    return SocketAddress(arguments.uds, arguments.host, arguments.port)


async def serve(engine: KeptEngine, app: web.Application, address: SocketAddress) -> int:
    """Listens at an address once the engine answers.

    Returns 0 after SIGTERM, 1 once the engine has ended by itself. Raises KeptFailure.
    """
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    runner = web.AppRunner(
        app, handler_cancellation=True, shutdown_timeout=GRACE_SECONDS, access_log=None
    )
    try:
        if not await _started(engine, stopping):
            return 0
        await runner.setup()
        await _site(runner, address).start()
        _log.info("engine_listening", model=engine.model)
        ends = [asyncio.create_task(one) for one in (stopping.wait(), engine.failed())]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for task in ends:
            task.cancel()
        return 0 if stopping.is_set() else 1
    finally:
        await runner.cleanup()
        await engine.close()


def _site(runner: web.AppRunner, address: SocketAddress) -> web.BaseSite:
    if address.uds is not None:
        return web.UnixSite(runner, str(address.uds))
    return web.TCPSite(runner, address.host, address.port)


async def _started(engine: KeptEngine, stopping: asyncio.Event) -> bool:
    """Waits until the engine answers; False when it should end before that."""
    start, stop = asyncio.create_task(engine.start()), asyncio.create_task(stopping.wait())
    await asyncio.wait({start, stop}, return_when=asyncio.FIRST_COMPLETED)
    stop.cancel()
    if start.done():
        await start
        return True
    start.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await start
    return False
