"""The sleep of an engine, from its last request to the next."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.core import telemetry
from windlass_agent.engines.port import EngineControl, EngineError
from windlass_agent.executors.process.allocator import SlotPool
from windlass_agent.executors.process.engines.draining import quiet
from windlass_agent.executors.process.engines.engine_failure import EngineFailure
from windlass_agent.executors.process.engines.engine_process import EngineProcess

log = telemetry.logger("engines")
# An engine that has not woken by then is ended, and another one started. Most read their weights.
WAKE_SECONDS = 120.0
READ_BYTES_PER_SECOND = 100e6
LOOK_SECONDS = 0.2
# An engine that cannot be asked so many times in a row does not sleep, and fails.
TRIES = 3
# Fifty that sleep are not worth a core.
LOOKS_PER_QUESTION = 10


@dataclass(frozen=True, kw_only=True)
class EngineSleep:
    """One sleep of one engine, during which others may have its GPUs, not its place."""

    workload_id: str
    control: EngineControl
    process: EngineProcess
    places: SlotPool
    weight_bytes: int
    # Whether it should sleep now.
    wanted: Callable[[], bool]
    become: Callable[["pb.Phase.ValueType", str], None]
    # Called before it answers others.
    recheck: Callable[[], Awaitable[None]]

    async def through(self) -> bool:
        """Sleeps for as long as that is wanted; returns False if the engine ends or does not wake.

        One that sleeps although it is not wanted wakes once it has its GPUs. Its requests end
        first. One that comes nevertheless wakes it, since vLLM would hold it for ever. Raises
        EngineFailure if it does not fall asleep, or does not say whether it sleeps.
        """
        if not await self._falls_asleep():
            return not self.process.ended()
        while True:
            self.places.lend(self.workload_id)
            self.become(pb.PHASE_SLEEPING, "")
            is_asked = await self._until_needed()
            if self.process.ended():
                return False
            if await self._has_its_gpus(is_asked=is_asked):
                return await self._wakes()

    async def _falls_asleep(self) -> bool:
        """Returns False if it neither sleeps nor should, or has ended."""
        failures = 0
        while not self.process.ended():
            try:
                sleeps = await self.control.asleep()
                if not (sleeps or self.wanted()):
                    return False
                if not failures:
                    self.become(pb.PHASE_SLEEPING, "FallingAsleep")
                if not sleeps:
                    await quiet(self.control, self.process, self.wanted)
                    if not self.wanted():
                        # A call that was given up may have it sleep yet.
                        continue
                # One that says that it sleeps may have only begun to, and use its GPUs yet.
                await self.control.sleep()
                return True
            except EngineError as error:
                # It may be slow, or have ended.
                failures += 1
                if failures == TRIES:
                    message = f"The engine did not fall asleep: {error}"
                    raise EngineFailure("SleepFailed", message) from error
            await asyncio.sleep(LOOK_SECONDS)
        return False

    async def _until_needed(self) -> bool:
        """Waits until it should wake or has ended; returns True if a request came before that."""
        for look in itertools.count():
            if not self.wanted() or self.process.ended():
                break
            if look % LOOKS_PER_QUESTION == 0 and await self._is_asked():
                return True
            await asyncio.sleep(LOOK_SECONDS)
        return False

    async def _is_asked(self) -> bool:
        try:
            return bool(await self.control.open_requests())
        except EngineError:
            # Whether it lives at all, its wake tells.
            return False

    async def _has_its_gpus(self, *, is_asked: bool) -> bool:
        """Waits until no other workload has them; returns False if it is not needed any more."""
        taking = asyncio.create_task(self.places.take_back(self.workload_id))
        try:
            # Nothing to wait for, mostly.
            await asyncio.sleep(0)
            if not taking.done():
                self.become(pb.PHASE_PENDING, "WaitingForGpu")
            for look in itertools.count(1):
                if self.process.ended() or (self.wanted() and not is_asked):
                    break
                await asyncio.wait({taking}, timeout=LOOK_SECONDS)
                if taking.done():
                    return True
                if is_asked and look % LOOKS_PER_QUESTION == 0:
                    # Its client may have left.
                    is_asked = await self._is_asked()
            return False
        finally:
            taking.cancel()
            await asyncio.gather(taking, return_exceptions=True)

    async def _wakes(self) -> bool:
        self.become(pb.PHASE_STARTING, "Waking")
        try:
            async with asyncio.timeout(WAKE_SECONDS + self.weight_bytes / READ_BYTES_PER_SECOND):
                await self.control.wake()
                await self.recheck()
        except (EngineError, TimeoutError) as error:
            log.warning("engine_not_woken", engine=self.workload_id, error=repr(error))
            return False
        return True
