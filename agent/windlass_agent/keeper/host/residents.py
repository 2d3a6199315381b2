"""All residents of a pod: which there are, and which should be by the last order."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from windlass.api.keeper.v1 import keeper_pb2 as pb
from windlass.core import telemetry
from windlass_agent.keeper.host.order import known
from windlass_agent.keeper.host.processes import HostedProcesses

log = telemetry.logger("host")


class PodResidents:
    """Residents below a folder; `keeper` is the program of their keepers, as it calls the agent."""

    def __init__(self, folder: Path, keeper: Sequence[str]):
        self._folder = folder
        self._keeper = keeper
        self._there: dict[str, HostedProcesses] = {}
        self._wanted: dict[str, pb.Resident] = {}
        self._kept = frozenset[str]()
        # Of the last order of the present call.
        self._number = 0
        self._living: set[asyncio.Task[None]] = set()
        # Set when a report may differ.
        self._changed = asyncio.Event()

    @property
    def waited(self) -> set[int]:
        """The processes that are waited for."""
        return {pid for one in self._there.values() for pid in one.waited}

    def take(self, order: pb.HostOrder) -> None:
        """Takes which should run: others are ended, but for those that it keeps."""
        self._wanted, self._kept = known(order), frozenset(order.kept)
        self._number = order.number
        self._adjust()

    async def reports(self) -> AsyncIterator[pb.HostReport]:
        """The residents of one call: now, after each change, and after each order of it."""
        told, self._number = None, 0
        while True:
            self._changed.clear()
            report = pb.HostReport(residents=self._states(), order=self._number)
            if report != told:
                told = report
                yield report
            await self._changed.wait()

    def _states(self) -> list[pb.ResidentState]:
        return [
            pb.ResidentState(
                workload_id=name, digest=one.order.digest, slot=one.order.slot, end=one.end
            )
            for name, one in self._there.items()
        ]

    async def close(self) -> None:
        """Ends all of them, and waits until nothing is left."""
        self._wanted, self._kept = {}, frozenset()
        self._adjust()
        await asyncio.gather(*self._living)

    def _adjust(self) -> None:
        for name, one in list(self._there.items()):
            wish = self._wanted.get(name)
            stays = name in self._kept if wish is None else wish.digest == one.order.digest
            if not stays:
                one.stop()
            # One that has ended by itself is told of until it is no longer ordered.
            if one.over.is_set() and not (stays and one.end):
                del self._there[name]
        taken = {one.order.slot for one in self._there.values()}
        for name, wish in self._wanted.items():
            # One that is to be another begins once nothing of the former is left.
            if name not in self._there and wish.slot not in taken:
                taken.add(wish.slot)
                self._start(name, wish)
        self._changed.set()

    def _start(self, name: str, wish: pb.Resident) -> None:
        log.info("resident_starts", workload=name, slot=wish.slot)
        one = self._there[name] = HostedProcesses(wish, self._folder / name, self._keeper)
        living = asyncio.create_task(self._live(one), name=name)
        self._living.add(living)
        living.add_done_callback(self._living.discard)

    async def _live(self, one: HostedProcesses) -> None:
        await one.run()
        self._adjust()
