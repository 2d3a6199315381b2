"""Waits until an engine on this machine answers, and until it answers no more."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.core import telemetry
from windlass_agent.engines.port import EngineControl, EngineError
from windlass_agent.executors.process.engines.engine_process import EngineProcess

log = telemetry.logger("engines")
START_SECONDS = 900.0
STARTING_POLL_SECONDS = 0.05
FAILED_POLL_SECONDS = 1.0
PROBE_EVERY_SECONDS = 10.0
UNANSWERED_SECONDS = 120.0


async def until_answering(
    process: EngineProcess, socket: Path, answers: Callable[[], Awaitable[bool]]
) -> bool:
    """Waits until `answers` is true; returns False if the process ended first.

    Raises TimeoutError, in words, after START_SECONDS.
    """
    try:
        async with asyncio.timeout(START_SECONDS):
            while not process.ended():
                if socket.exists() and await answers():
                    return True
                await asyncio.sleep(STARTING_POLL_SECONDS)
    except TimeoutError as error:
        minutes = f"{START_SECONDS / 60:.0f} minutes"
        words = f"The engine did not answer within {minutes} of its start."
        raise TimeoutError(words) from error
    return False


async def warmed(
    control: EngineControl, spec: pb.EngineWorkload, failing: Callable[[str], None]
) -> bool:
    """Returns True once it is ready, and has answered a request of ours before any client's.

    `failing` is told what it says where it is ready and fails.
    """
    if not await control.ready():
        return False
    try:
        await control.warm(spec.model, spec.arguments.task)
    except EngineError as error:
        log.warning("engine_failing", model=spec.model, error=str(error))
        failing(f"It is ready, but fails: {error}")
        await asyncio.sleep(FAILED_POLL_SECONDS)
        return False
    return True


async def until_silent(process: EngineProcess, control: EngineControl) -> None:
    """Returns once the engine has not answered for UNANSWERED_SECONDS; keeps its log in bounds."""
    clock = asyncio.get_running_loop().time
    answered = clock()
    while clock() - answered < UNANSWERED_SECONDS:
        await asyncio.sleep(PROBE_EVERY_SECONDS)
        process.bound_log()
        if await control.ready():
            answered = clock()
