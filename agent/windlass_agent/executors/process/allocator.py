"""The machine shared out: who holds what of it, and who waits for more."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from windlass.api.jobs.v1.jobs_pb2 import Resources
from windlass_agent.executors.process.allotment import Allotment, ResourceRequest
from windlass_agent.machine import Device, Machine
from windlass_agent.memory import in_units

JOB, ENGINE = "job", "engine"
SLOT, GPUS, CPUS, MEMORY = "slot", "gpus", "cpus", "memory"
# The kind of a workload, and its name.
_Key = tuple[str, str]


@dataclass
class _Waiter:
    asked: ResourceRequest
    needs: frozenset[tuple[str, str]]
    turn: asyncio.Event = field(default_factory=asyncio.Event)


class Allocator:
    """Gives shares of a machine out, first come, first served.

    A waiting workload holds up those behind it that need the same, and no others. A GPU is
    one job's alone, or one engine's that asks for that; other engines share those that are left.
    Whoever does not use its GPUs for a while lends them, and waits until it has them again.
    """

    def __init__(self, machine: Machine):
        self.machine = machine
        self._sizes: dict[str, int] = {}
        self._held: dict[_Key, Allotment] = {}
        self._waiting: dict[_Key, _Waiter] = {}
        # Those of which others may have the devices now.
        self._lending: set[_Key] = set()
        # What is kept for somebody who waits for it, and for whom: a kind of resource, or a device.
        self._kept: dict[tuple[str, str], _Key] = {}
        # Places in the queues; None once they have changed.
        self._positions: dict[_Key, int] | None = None

    def places(self, kind: str, size: int) -> "SlotPool":
        """The places of a kind of workload, so many at once."""
        self._sizes[kind] = size
        return SlotPool(self, kind, size)

    def held(self, *kinds: str) -> Resources:
        """The resources that the workloads of some kinds hold together."""
        allotments = [one for (kind, _), one in self._held.items() if kind in kinds]
        used = [one for key, one in self._used() if key[0] in kinds]
        return Resources(
            gpus=len({device.id for one in used for device in one.devices}),
            cpus=sum(one.cpus for one in allotments),
            memory_bytes=sum(one.memory_bytes for one in allotments),
        )

    def used(self, device: Device) -> bool:
        """Returns True if somebody holds the device."""
        return any(device in one.devices for _, one in self._used())

    def count(self, kind: str) -> int:
        """The number of places held by a kind; above its size when what was adopted needs more."""
        return sum(1 for held, _ in self._held if held == kind)

    def position(self, key: _Key) -> int:
        """The place in the queue of the kind, from 1; 0 for a workload that does not wait."""
        if self._positions is None:
            places = Counter[str]()
            self._positions = {}
            for waiting in self._waiting:
                places[waiting[0]] += 1
                self._positions[waiting] = places[waiting[0]]
        return self._positions.get(key, 0)

    def lack(self, key: _Key) -> str:
        """The lack that a workload waits for, in words; empty for a slot, and without a wait."""
        waiter = self._waiting.get(key)
        lacking = [] if waiter is None else self._lacking(key, waiter)
        if waiter is None or SLOT in lacking:
            return ""
        for what in lacking:
            free, total = self._free(key, waiter.asked)[what], self._total()[what]
            return (
                f"Waiting for {_spelled(what, _amounts(waiter.asked)[what])}: "
                f"{_spelled(what, max(0, free))} of {_spelled(what, total)} free"
            )
        return "Waiting for earlier workloads"

    def waits_for_gpus(self, key: _Key) -> bool:
        """Returns True if a workload waits for GPUs, and for nothing else."""
        waiter = self._waiting.get(key)
        return waiter is not None and self._lacking(key, waiter) == [GPUS]

    def never(self, asked: ResourceRequest) -> str:
        """The lack that the machine can never fill, in words; empty when it has enough."""
        total = self._total()
        for what, amount in _amounts(asked).items():
            if amount > total[what]:
                return (
                    f"The machine has {_spelled(what, total[what])}; "
                    f"{_spelled(what, amount)} were requested."
                )
        return ""

    async def acquire(self, key: _Key, asked: ResourceRequest) -> Allotment:
        """Waits for a share; a cancelled wait leaves the queue and gives back what it got."""
        needs = frozenset(_needs(key[0], [SLOT, *_amounts(asked)]))
        waiter = self._waiting[key] = _Waiter(asked, needs)
        self._positions = None
        self._consider(key, waiter)
        try:
            await waiter.turn.wait()
        except BaseException:
            self.release(key)
            raise
        return self._held[key]

    def take(self, key: _Key, allotment: Allotment) -> None:
        """Takes a share at once, free or not, for something that runs already."""
        self._held[key] = allotment

    def lend(self, key: _Key) -> None:
        """Lets others have the devices of a workload that does not use them now."""
        if key in self._held:
            self._lending.add(key)
            self._reconsider()

    def lends(self, key: _Key) -> bool:
        """Returns True if others may have the devices of a workload now."""
        return key in self._lending

    async def take_back(self, key: _Key) -> None:
        """Waits until a workload that lends its devices has them again; returns at once otherwise.

        A cancelled wait leaves them with the others.
        """
        if key not in self._lending:
            return
        held = self._held[key]
        asked = ResourceRequest(gpus=len(held.devices), alone=held.alone)
        needs = frozenset([*_needs(key[0], _amounts(asked)), *map(_own, held.devices)])
        waiter = self._waiting[key] = _Waiter(asked, needs)
        self._positions = None
        self._consider(key, waiter)
        try:
            await waiter.turn.wait()
        except BaseException:
            self._leave(key)
            raise

    def release(self, key: _Key) -> None:
        """Gives up a share, or the wait for one."""
        held = self._held.pop(key, None)
        self._lending.discard(key)
        self._leave(key, freed=held is not None)

    def _leave(self, key: _Key, *, freed: bool = False) -> None:
        """Takes a workload out of the queue."""
        if self._waiting.pop(key, None) is not None:
            self._positions = None
        # Of thousands who wait, few leave something to others when they go.
        if freed or key in self._kept.values():
            self._reconsider()

    def _reconsider(self) -> None:
        self._kept.clear()
        for waiting, waiter in tuple(self._waiting.items()):
            if waiter.needs.isdisjoint(self._kept):
                self._consider(waiting, waiter)

    def _consider(self, key: _Key, waiter: _Waiter) -> None:
        """Gives somebody a share, unless it is not there or others wait for the same."""
        if not waiter.needs.isdisjoint(self._kept):
            return
        if lacking := self._lacking(key, waiter):
            lent = self._held[key].devices if key in self._lending else ()
            # Whoever waits for its own devices leaves all others to others.
            kept = map(_own, lent) if lent else _needs(key[0], lacking)
            self._kept.update(dict.fromkeys(kept, key))
            return
        del self._waiting[key]
        self._positions = None
        if key in self._lending:
            self._lending.discard(key)
        else:
            self._held[key] = self._allot(key, waiter.asked)
        waiter.turn.set()

    def _lacking(self, key: _Key, waiter: _Waiter) -> list[str]:
        """The resources that a workload waits for, of which there are too few."""
        if key not in self._lending:
            return self._short(key, waiter.asked)
        # Its own, whichever others are free.
        free = self._devices(key, waiter.asked)
        return [] if set(self._held[key].devices) <= set(free) else [GPUS]

    def _used(self) -> Iterable[tuple[_Key, Allotment]]:
        """Shares of those that use their devices."""
        return ((key, one) for key, one in self._held.items() if key not in self._lending)

    def _short(self, key: _Key, asked: ResourceRequest) -> list[str]:
        """The resources that there are too few of now."""
        kind, free = key[0], self._free(key, asked)
        lacking = [what for what, amount in _amounts(asked).items() if amount > free[what]]
        return lacking if self.count(kind) < self._sizes[kind] else [SLOT, *lacking]

    def _free(self, key: _Key, asked: ResourceRequest) -> dict[str, int]:
        held, total = self.held(*self._sizes), self._total()
        return {
            GPUS: len(self._devices(key, asked)),
            CPUS: total[CPUS] - held.cpus,
            MEMORY: total[MEMORY] - held.memory_bytes,
        }

    def _total(self) -> dict[str, int]:
        machine = self.machine
        return {GPUS: len(machine.devices), CPUS: machine.cpus, MEMORY: machine.memory_bytes}

    def _devices(self, key: _Key, asked: ResourceRequest) -> list[Device]:
        """The devices that one more workload may have, those that fewest have first."""
        shared, taken = Counter[str](), set[str]()
        for (holder, _), one in self._used():
            for device in one.devices:
                shared[device.id] += 1
                if holder == JOB or one.alone:
                    taken.add(device.id)
        if key[0] == JOB or asked.alone:
            taken.update(shared)
        free = [
            device
            for device in self.machine.devices
            if device.id not in taken and self._kept.get(_own(device), key) == key
        ]
        return sorted(free, key=lambda device: shared[device.id])

    def _allot(self, key: _Key, asked: ResourceRequest) -> Allotment:
        load = Counter(number for one in self._held.values() for number in one.processors)
        processors = sorted(self.machine.processors, key=lambda number: (load[number], number))
        return Allotment(
            devices=tuple(self._devices(key, asked)[: asked.gpus]),
            alone=asked.alone,
            cpus=asked.cpus,
            processors=tuple(sorted(processors[: asked.cpus])),
            memory_bytes=asked.memory_bytes,
        )


@dataclass(frozen=True)
class SlotPool:
    """The places for one kind of workload, each with its share of the machine."""

    allocator: Allocator
    kind: str
    size: int

    @property
    def used(self) -> int:
        """Places taken; more than `size` when what was adopted needs more."""
        return self.allocator.count(self.kind)

    def position(self, name: str) -> int:
        """The place in the queue, from 1; 0 for a workload that does not wait."""
        return self.allocator.position((self.kind, name))

    def lack(self, name: str) -> str:
        """The lack that a workload waits for beside a place, in words; empty when there is none."""
        return self.allocator.lack((self.kind, name))

    async def acquire(self, name: str, asked: ResourceRequest) -> Allotment:
        """Waits for a place and a share."""
        return await self.allocator.acquire((self.kind, name), asked)

    def take(self, name: str, allotment: Allotment) -> None:
        """Takes a place at once, free or not, for something that runs already."""
        self.allocator.take((self.kind, name), allotment)

    def waits_for_gpus(self, name: str) -> bool:
        """Returns True if a workload waits for GPUs, and for nothing else."""
        return self.allocator.waits_for_gpus((self.kind, name))

    def lend(self, name: str) -> None:
        """Lets others have the devices of a workload that does not use them now."""
        self.allocator.lend((self.kind, name))

    def lends(self, name: str) -> bool:
        """Returns True if others may have the devices of a workload now."""
        return self.allocator.lends((self.kind, name))

    async def take_back(self, name: str) -> None:
        """Waits until a workload that lends its devices has them again."""
        await self.allocator.take_back((self.kind, name))

    def release(self, name: str) -> None:
        """Gives up a place, or the wait for one."""
        self.allocator.release((self.kind, name))


def _amounts(asked: ResourceRequest) -> dict[str, int]:
    amounts = {GPUS: asked.gpus, CPUS: asked.cpus, MEMORY: asked.memory_bytes}
    return {what: amount for what, amount in amounts.items() if amount}


def _needs(kind: str, what: Iterable[str]) -> list[tuple[str, str]]:
    """Slots are of a kind; all else is everybody's."""
    return [(kind if one == SLOT else "", one) for one in what]


def _own(device: Device) -> tuple[str, str]:
    """A device, as what the workload that lends it needs."""
    return GPUS, device.id


def _spelled(what: str, amount: int) -> str:
    if what == MEMORY:
        return f"{in_units(amount)} of memory"
    return f"{amount} {'GPU' if what == GPUS else 'CPU'}{'' if amount == 1 else 's'}"
