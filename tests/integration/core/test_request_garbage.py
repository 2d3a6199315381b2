"""Requests leave no cycles: a collection that finds none costs a chat nothing."""

import gc
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.support.services.front import Front, running_engine, running_front
from tests.support.waiting import until

from windlass.gateway.exchange import HttpExchange

CHAT = {"model": "toy", "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
async def front(database_url: str, tmp_path: Path) -> AsyncIterator[Front]:
    async with running_front(database_url, tmp_path / "data") as front:
        yield front


@pytest.fixture
def no_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def exchanges() -> int:
    return sum(isinstance(one, HttpExchange) for one in gc.get_objects())


@pytest.mark.parametrize("stream", [False, True])
async def test_a_chat_is_gone_when_it_is_answered(
    front: Front, no_collection: None, stream: bool
) -> None:
    async with running_engine() as engine, front.http() as http:
        front.board.pin("toy", engine.address)
        for _ in range(20):
            answer = await http.post("/v1/chat/completions", json=CHAT | {"stream": stream})
            assert answer.status_code == 200, answer.text
        # What watches over a slow one ends a turn later, and what waited for its route, or was
        # looked at meanwhile, may leave a cycle: a few of them, where each chat left one before.
        await until(lambda: exchanges() <= 5)
