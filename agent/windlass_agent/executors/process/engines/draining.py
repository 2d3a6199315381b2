"""The end of an engine's requests, before its own end or its sleep."""

import asyncio
import contextlib
from collections.abc import Callable

from windlass.core import telemetry
from windlass_agent.engines.port import EngineControl, EngineError
from windlass_agent.executors.process.engines.engine_process import EngineProcess

log = telemetry.logger("engines")
# Without a request, since a gateway may have sent one before it heard that the engine stops.
QUIET_SECONDS = 1.0
_LOOK_SECONDS = 0.1


async def drained(control: EngineControl, process: EngineProcess, seconds: float) -> None:
    """Waits until no request has been open for a moment, for so many seconds at most.

    Returns early if the engine ended or does not say.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            try:
                await quiet(control, process)
            except EngineError as error:
                log.warning("engine_not_drained", error=str(error))
            return
    log.warning("engine_requests_cut", after_seconds=seconds)


async def quiet(
    control: EngineControl, process: EngineProcess, wanted: Callable[[], bool] = lambda: True
) -> None:
    """Waits until no request has been open for a moment; raises EngineError.

    Returns early if the engine ended, or once that is not wanted any more.
    """
    clock = asyncio.get_running_loop().time
    idle_since = None
    while wanted() and not process.ended():
        is_idle = not await control.open_requests()
        now = clock()
        idle_since = (idle_since or now) if is_idle else None
        if idle_since is not None and now - idle_since >= QUIET_SECONDS:
            return
        await asyncio.sleep(_LOOK_SECONDS)
