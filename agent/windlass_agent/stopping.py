"""The planned stop of an agent: open requests to its engines end before it does."""

import asyncio
import contextlib

from windlass.core import telemetry
from windlass_agent.agent import Agent, set_within
from windlass_agent.runner.supervisor.signals import StopSignal
from windlass_agent.tunnel.open_connections import OpenConnections

log = telemetry.logger("agent")
LOOK_SECONDS = 0.1


async def run_until_stopped(agent: Agent, requests: OpenConnections, *, seconds: float) -> None:
    """Runs an agent until SIGTERM, and then until no request is open, or a second SIGTERM.

    Open requests keep it for so many seconds at most. Raises what `Agent.run` raises.
    """
    signals = StopSignal()
    signals.install()
    work = asyncio.create_task(agent.run())
    ending = asyncio.create_task(_end_due(agent, requests, signals, seconds))
    try:
        await asyncio.wait({work, ending}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        ending.cancel()
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work


async def _end_due(
    agent: Agent, requests: OpenConnections, signals: StopSignal, seconds: float
) -> None:
    """Returns once the agent should end."""
    await signals.requested.wait()
    if not requests.count:
        return
    log.info("agent_draining", connections=requests.count)
    agent.drain()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            # Aiohttp tells of no connection that closes.
            while requests.count and not await set_within(signals.forced, LOOK_SECONDS):
                pass
    if requests.count:
        log.warning("requests_cut", connections=requests.count)
