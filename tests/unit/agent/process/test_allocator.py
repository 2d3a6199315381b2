"""Shares of a machine go by the order of asking, no GPU to two, and none is lost."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.support.waiting import PATIENCE

from windlass_agent.executors.process.allocator import ENGINE, JOB, Allocator, SlotPool
from windlass_agent.executors.process.allotment import Allotment, ResourceRequest
from windlass_agent.machine import Device, Machine

DEVICES = tuple(Device(id=f"GPU-{number}") for number in range(4))
MACHINE = Machine(devices=DEVICES, processors=(0, 1, 2, 3), cpus=4, memory_bytes=8 * 2**30)


def jobs(size: int = 1, machine: Machine = MACHINE) -> SlotPool:
    return Allocator(machine).places(JOB, size)


def ids(allotment: Allotment) -> list[str]:
    return [device.id for device in allotment.devices]


async def settled(*tasks: asyncio.Task[Any]) -> list[bool]:
    for _ in range(3):
        await asyncio.sleep(0)
    return [task.done() for task in tasks]


async def test_places_go_in_the_order_of_asking() -> None:
    places, order = jobs(), []

    async def hold(name: str) -> None:
        await places.acquire(name, ResourceRequest())
        order.append(name)

    tasks = [asyncio.create_task(hold(name)) for name in "abc"]
    await asyncio.sleep(0)
    assert [places.position(name) for name in "abc"] == [0, 1, 2]
    for name in "abc":
        places.release(name)
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert order == ["a", "b", "c"]
    assert places.used == 0


async def test_a_cancelled_wait_keeps_nothing() -> None:
    places = jobs()
    await places.acquire("a", ResourceRequest(gpus=4))
    waiting = asyncio.create_task(places.acquire("b", ResourceRequest(gpus=4)))
    await asyncio.sleep(0)
    places.release("a")
    # It has its place by now, and does not know yet.
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    async with asyncio.timeout(PATIENCE):
        assert ids(await places.acquire("c", ResourceRequest(gpus=4))) == [
            one.id for one in DEVICES
        ]
    assert places.used == 1


async def test_what_is_adopted_counts_even_beyond_the_size() -> None:
    places = jobs()
    places.take("a", Allotment(devices=DEVICES[:1]))
    places.take("b", Allotment(devices=(Device(id="GPU-gone"),)))
    waiting = asyncio.create_task(places.acquire("c", ResourceRequest(gpus=1)))
    places.release("b")
    assert await settled(waiting) == [False]
    places.release("a")
    async with asyncio.timeout(PATIENCE):
        assert ids(await waiting) == ["GPU-0"]


async def test_who_waits_for_gpus_holds_up_those_who_want_some_and_nobody_else() -> None:
    places = jobs(5)
    await places.acquire("a", ResourceRequest(gpus=3))
    many = asyncio.create_task(places.acquire("many", ResourceRequest(gpus=2)))
    one = asyncio.create_task(places.acquire("one", ResourceRequest(gpus=1)))
    none = asyncio.create_task(places.acquire("none", ResourceRequest(cpus=1)))
    assert await settled(many, one, none) == [False, False, True]
    assert places.lack("many") == "Waiting for 2 GPUs: 1 GPU of 4 GPUs free"
    assert places.lack("one") == "Waiting for earlier workloads"
    assert [places.position(name) for name in ("many", "one", "none")] == [1, 2, 0]
    places.release("a")
    assert await settled(many, one) == [True, True]
    assert not set(ids(many.result())) & set(ids(one.result()))


async def test_cpus_and_memory_are_shared_out_too() -> None:
    places = jobs(5)
    first = await places.acquire("a", ResourceRequest(cpus=3, memory_bytes=6 * 2**30))
    assert first.processors == (0, 1, 2)
    waits = [
        asyncio.create_task(places.acquire("cpus", ResourceRequest(cpus=2))),
        asyncio.create_task(places.acquire("memory", ResourceRequest(memory_bytes=3 * 2**30))),
    ]
    assert await settled(*waits) == [False, False]
    assert places.lack("cpus") == "Waiting for 2 CPUs: 1 CPU of 4 CPUs free"
    assert places.lack("memory") == (
        "Waiting for 3 GiB of memory: 2 GiB of memory of 8 GiB of memory free"
    )
    # Who asks for none takes what nobody uses.
    assert await places.acquire("none", ResourceRequest()) == Allotment()
    places.release("a")
    assert await settled(*waits) == [True, True]


async def test_engines_share_gpus_and_no_job_has_one_of_theirs() -> None:
    allocator = Allocator(Machine(devices=DEVICES[:2]))
    engines, training = allocator.places(ENGINE, 4), allocator.places(JOB, 4)
    shares = [ids(await engines.acquire(name, ResourceRequest(gpus=1))) for name in "abc"]
    assert shares == [["GPU-0"], ["GPU-1"], ["GPU-0"]]
    job = asyncio.create_task(training.acquire("job", ResourceRequest(gpus=1)))
    assert await settled(job) == [False]
    assert (allocator.held(ENGINE).gpus, allocator.held(JOB).gpus) == (2, 0)
    engines.release("b")
    assert await settled(job) == [True]
    assert ids(job.result()) == ["GPU-1"]
    assert ids(await engines.acquire("d", ResourceRequest(gpus=1))) == ["GPU-0"]


async def test_an_engine_that_takes_all_of_its_gpus_shares_none() -> None:
    allocator = Allocator(Machine(devices=DEVICES[:2]))
    engines = allocator.places(ENGINE, 4)
    assert ids(await engines.acquire("small", ResourceRequest(gpus=1))) == ["GPU-0"]
    whole = await engines.acquire("whole", ResourceRequest(gpus=1, alone=True))
    assert ids(whole) == ["GPU-1"]
    assert ids(await engines.acquire("other", ResourceRequest(gpus=1))) == ["GPU-0"]
    second = asyncio.create_task(engines.acquire("second", ResourceRequest(gpus=1, alone=True)))
    assert await settled(second) == [False]
    assert engines.lack("second") == "Waiting for 1 GPU: 0 GPUs of 2 GPUs free"
    engines.release("small")
    assert await settled(second) == [False], "another one is still there"
    engines.release("other")
    assert await settled(second) == [True]


async def test_a_lent_gpu_is_anybodys_until_its_holder_needs_it_again() -> None:
    allocator = Allocator(Machine(devices=DEVICES[:1]))
    engines, queue = allocator.places(ENGINE, 3), allocator.places(JOB, 1)
    alone = ResourceRequest(gpus=1, alone=True)
    await engines.acquire("first", alone)
    second = asyncio.create_task(engines.acquire("second", alone))
    assert await settled(second) == [False]
    engines.lend("first")
    assert await settled(second) == [True]
    assert (allocator.held(ENGINE).gpus, engines.used) == (1, 2)
    again = asyncio.create_task(engines.take_back("first"))
    job = asyncio.create_task(queue.acquire("job", alone))
    assert await settled(again, job) == [False, False]
    assert engines.lack("first") == "Waiting for 1 GPU: 0 GPUs of 1 GPU free"
    assert engines.waits_for_gpus("first")
    again.cancel()
    assert await settled(again) == [True]
    engines.lend("second")
    assert await settled(job) == [True], "both sleep"
    back = [asyncio.create_task(engines.take_back(name)) for name in ("second", "first")]
    assert await settled(*back) == [False, False]
    queue.release("job")
    assert await settled(*back) == [True, False]
    engines.release("second")
    assert await settled(*back) == [True, True]
    await engines.take_back("first")


async def test_whoever_waits_for_its_own_gpu_leaves_the_others_to_others() -> None:
    allocator = Allocator(Machine(devices=DEVICES[:3]))
    engines, queue = allocator.places(ENGINE, 4), allocator.places(JOB, 4)
    alone = ResourceRequest(gpus=1, alone=True)
    await engines.acquire("first", ResourceRequest(gpus=1, alone=True))
    engines.lend("first")
    assert ids(await queue.acquire("job", ResourceRequest(gpus=1))) == ["GPU-0"]
    again = asyncio.create_task(engines.take_back("first"))
    assert await settled(again) == [False]
    assert ids(await engines.acquire("second", alone)) == ["GPU-1"]
    engines.lend("second")
    assert ids(await queue.acquire("next", alone)) == ["GPU-1"]
    both = asyncio.create_task(queue.acquire("both", ResourceRequest(gpus=2)))
    later = asyncio.create_task(engines.take_back("second"))
    assert await settled(both, later) == [False, False]
    assert engines.waits_for_gpus("first")
    queue.release("job")
    assert await settled(again, both) == [True, False], "its own was kept for it"
    queue.release("next")
    assert await settled(both, later) == [True, False], "who came first goes first"
    queue.release("both")
    assert await settled(later) == [True]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (ResourceRequest(gpus=5), "The machine has 4 GPUs; 5 GPUs were requested."),
        (ResourceRequest(cpus=9), "The machine has 4 CPUs; 9 CPUs were requested."),
        (ResourceRequest(gpus=4, cpus=4, memory_bytes=8 * 2**30), ""),
    ],
)
def test_what_can_never_be_had_is_said(asked: ResourceRequest, said: str) -> None:
    assert Allocator(MACHINE).never(asked) == said


ASKED = st.builds(
    ResourceRequest, gpus=st.integers(0, 4), cpus=st.integers(0, 4),
    memory_bytes=st.integers(0, 8).map(lambda gib: gib * 2**30),
)  # fmt: skip


class Sharing(RuleBasedStateMachine):
    """No resource is given twice, and nobody waits for a free one."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.allocator = Allocator(MACHINE)
        self.kinds = {JOB: self.allocator.places(JOB, 3), ENGINE: self.allocator.places(ENGINE, 2)}
        self.tasks: dict[tuple[str, str], asyncio.Task[Any]] = {}

    @rule(kind=st.sampled_from([JOB, ENGINE]), asked=ASKED)
    def ask(self, kind: str, asked: ResourceRequest) -> None:
        key = kind, str(len(self.tasks))
        self.tasks[key] = self.loop.create_task(self.kinds[kind].acquire(key[1], asked))
        self.turn()

    @rule(number=st.integers(0, 50))
    def leave(self, number: int) -> None:
        if self.tasks:
            key = list(self.tasks)[number % len(self.tasks)]
            self.tasks[key].cancel()
            self.turn()
            self.kinds[key[0]].release(key[1])
            self.turn()

    @rule(number=st.integers(0, 50))
    def sleep_or_wake(self, number: int) -> None:
        held = [key for key in self.allocator._held if key[0] == ENGINE and self.tasks[key].done()]
        if held:
            key = held[number % len(held)]
            if key in self.allocator._lending:
                self.tasks[key] = self.loop.create_task(self.kinds[ENGINE].take_back(key[1]))
            else:
                self.kinds[ENGINE].lend(key[1])
            self.turn()

    def turn(self) -> None:
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.run_until_complete(asyncio.sleep(0))

    @invariant()
    def nothing_is_given_twice(self) -> None:
        held, lending = self.allocator._held, self.allocator._lending
        holders = Counter(
            device.id for (kind, _), one in held.items() if kind == JOB for device in one.devices
        )
        assert all(count == 1 for count in holders.values())
        shared = {
            device.id
            for key, one in held.items()
            if key[0] == ENGINE and key not in lending
            for device in one.devices
        }
        assert not shared & holders.keys()
        together = self.allocator.held(JOB, ENGINE)
        assert together.cpus <= MACHINE.cpus
        assert together.memory_bytes <= MACHINE.memory_bytes
        assert all(places.used <= places.size for places in self.kinds.values())
        for one in held.values():
            assert len(one.processors) == one.cpus

    @invariant()
    def the_first_waits_for_something(self) -> None:
        for key in list(self.allocator._waiting)[:1]:
            assert self.allocator._lacking(key, self.allocator._waiting[key])

    def teardown(self) -> None:
        for task in self.tasks.values():
            task.cancel()
        self.turn()
        self.loop.close()


TestSharing = Sharing.TestCase
TestSharing.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
