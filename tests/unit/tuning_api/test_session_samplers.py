"""Samplers of sessions: prompts spread over those that answer, and growth that delays none.

Samplers here answer when the test lets them: what is tested is who gets a prompt.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from windlass.tuning_api.trainers import session_samplers
from windlass.tuning_api.trainers.records import DType, SampleRequest, Tensor
from windlass.tuning_api.trainers.seats import SeatAwaited
from windlass.tuning_api.trainers.session_samplers import SessionSamplers

PROMPT = Tensor(DType.INT32, (1,), b"\1\0\0\0")


@dataclass(eq=False)
class Held:
    """Answers once it is let go; has no seat while `has_room` is false."""

    number: int
    has_room: bool = True
    is_started: bool = False
    is_stopped: bool = False
    starts: int = 0
    slow: asyncio.Event | None = None
    asked: int = 0
    go: asyncio.Event = field(default_factory=asyncio.Event)

    async def start(self, project_id: str) -> None:
        self.starts += 1
        if self.slow is not None:
            await self.slow.wait()
        if not self.has_room:
            raise SeatAwaited("no room")
        self.is_started = True

    async def sample(self, request: SampleRequest) -> Any:
        if not self.is_started:
            await self.start(request.project_id)
        self.asked += 1
        await self.go.wait()
        return self

    async def stop(self) -> None:
        self.is_stopped, self.is_started = True, False
        self.go.set()


class Stage:
    """Samplers by session, in the order in which they were made."""

    def __init__(self, most: int, has_room: Callable[[int], bool] = lambda number: True) -> None:
        self.made: list[Held] = []
        self._has_room = has_room
        self.samplers = SessionSamplers(self._make, most=most)

    def _make(self, request: SampleRequest, number: int) -> Held:
        made = Held(number, self._has_room(number))
        self.made.append(made)
        return made

    async def ask(self, session: str = "s", replicas: int = 2) -> "asyncio.Task[Any]":
        request = SampleRequest("toy", None, PROMPT, 1, 1, session_id=session, replicas=replicas)
        task = asyncio.create_task(self.samplers.sample(request))
        await turns()
        return task


async def turns() -> None:
    """Lets every task that can go on do so."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_prompts_go_to_the_one_that_has_the_fewest() -> None:
    stage = Stage(most=4)
    asked = [await stage.ask() for _ in range(6)]
    # The second one was busy with the first sampler, and had another started beside it.
    assert [one.asked for one in stage.made] == [3, 3]
    for one in stage.made:
        one.go.set()
    assert {one.number for one in await asyncio.gather(*asked)} == {0, 1}
    await stage.samplers.end("s")
    assert all(one.is_stopped for one in stage.made)


async def test_more_start_beside_the_first_one() -> None:
    stage = Stage(most=4, has_room=lambda number: bool(number))
    first = await stage.ask()
    assert isinstance(first.exception(), SeatAwaited)
    stage.made[0].slow = asyncio.Event()
    asked = [await stage.ask() for _ in range(3)]
    # The first one starts still: what came once the second answered is for that.
    assert [one.asked for one in stage.made] == [0, 1]
    stage.made[0].has_room = True
    stage.made[0].slow.set()
    for one in stage.made:
        one.go.set()
    answers = await asyncio.gather(*asked)
    assert [one.number for one in answers] == [0, 0, 1]
    await stage.samplers.stop()


async def test_one_that_gets_no_seat_delays_no_prompt(monkeypatch: Any) -> None:
    stage = Stage(most=4, has_room=lambda number: not number)
    asked = [await stage.ask() for _ in range(6)]
    first, second = stage.made
    assert (first.asked, second.asked, second.starts) == (6, 0, 1)
    monkeypatch.setattr(session_samplers, "RETRY_SECONDS", 0.0)
    second.has_room = True
    # Not before its time has come.
    asked.append(await stage.ask())
    assert second.starts == 1
    await stage.samplers.stop()
    await asyncio.gather(*asked)


async def test_more_are_bounded_by_all_and_leave_for_another_session() -> None:
    stage = Stage(most=2)
    asked = [await stage.ask(replicas=3) for _ in range(4)]
    assert len(stage.made) == 2
    other = await stage.ask(session="other")
    # All are busy: it waits.
    assert len(stage.made) == 2
    stage.made[1].go.set()
    await turns()
    # The second one made room.
    assert stage.made[1].is_stopped
    assert [one.asked for one in stage.made] == [2, 2, 1]
    await stage.samplers.stop()
    await asyncio.gather(*asked, other)


async def test_a_session_that_ends_waits_for_its_answers_and_takes_none() -> None:
    stage = Stage(most=2)
    asked = [await stage.ask() for _ in range(2)]
    await stage.samplers.end("s")
    assert not any(one.is_stopped for one in stage.made)
    again = await stage.ask()
    for one in stage.made:
        one.go.set()
    await turns()
    # What was asked meanwhile has a sampler of its own.
    assert [one.is_stopped for one in stage.made] == [True, True, False]
    stage.made[2].go.set()
    await asyncio.gather(*asked, again)
