"""Concurrent callers of one statement share it.

A statement of its own for each caller costs more in round trips than in work.
A caller that comes while one is under way joins the next, so that nobody waits for a
timer and the cost of each falls as load grows.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Question = TypeVar("Question")
Answer = TypeVar("Answer")


class Coalescer(Generic[Question, Answer]):
    """Asks for many at a time when many come; `ask` answers in the order of its questions.

    At most `abreast` calls of `ask` are under way, each with at most `batch` questions.
    """

    def __init__(
        self,
        name: str,
        ask: Callable[[Sequence[Question]], Awaitable[Sequence[Answer]]],
        *,
        batch: int = 100,
        abreast: int = 2,
    ):
        self._name = name
        self._ask = ask
        self._batch = batch
        self._abreast = abreast
        self._waiting: list[tuple[Question, asyncio.Future[Answer]]] = []
        # How many look after those who wait. A task that is over may still be among the tasks.
        self._working = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def __call__(self, question: Question) -> Answer:
        """Returns the answer to a question; raises what `ask` raised for its batch."""
        done: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, done))
        if self._working < self._abreast:
            self._working += 1
            task = asyncio.create_task(self._work(), name=self._name)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await done

    async def close(self) -> None:
        """Waits for what is under way."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _work(self) -> None:
        try:
            await self._answer_all()
        finally:
            self._working -= 1

    async def _answer_all(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[: self._batch], self._waiting[self._batch :]
            try:
                answers = await self._ask([question for question, _ in batch])
            except Exception as error:
                for _, done in batch:
                    if not done.done():
                        done.set_exception(error)
                continue
            for (_, done), answer in zip(batch, answers, strict=True):
                if not done.done():
                    done.set_result(answer)
