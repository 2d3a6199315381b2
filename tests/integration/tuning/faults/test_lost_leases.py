"""Two processes answer one request: the first answer stays, and nothing of the other is left."""

import asyncio
from typing import Any

import psycopg
import pytest
from tests.integration.tuning.test_log import Client
from tests.integration.tuning.wire.test_futures import poll, sampler
from tests.support.services.front import Front
from tests.support.waiting import until

from windlass.tuning.storage.execution import ExecutionStore
from windlass.tuning.submission import WAKE_SAMPLES
from windlass.tuning_api.trainers.null import NullTrainer
from windlass.tuning_api.trainers.records import SampledSequence, Samples

# More than a row takes.
LENGTH = 10_000


class SlowSampler:
    """A trainer whose first answer comes when it is let go; each is of other tokens."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[asyncio.Event] = []
        self.finished: list[bool] = []
        finish = ExecutionStore.finish

        async def sample(_: NullTrainer, request: Any) -> Samples:
            token = len(self.asked) + 1
            self.asked.append(asyncio.Event())
            if token == 1:
                await self.asked[0].wait()
            data = token.to_bytes(4, "little") * LENGTH
            return Samples(
                sequences=[SampledSequence(tokens=data, logprobs=data, was_stopped=False)]
            )

        async def noted(store: ExecutionStore, *arguments: Any) -> bool:
            self.finished.append(await finish(store, *arguments))
            return self.finished[-1]

        monkeypatch.setattr(NullTrainer, "sample", sample)
        monkeypatch.setattr(ExecutionStore, "finish", noted)


async def objects(front: Front) -> list[str]:
    return [one.key async for one in front.app.objects.list("tuning/") if "/operations/" in one.key]


async def asked(client: Client, name: str) -> dict[str, Any]:
    prompt = {"chunks": [{"type": "encoded_text", "tokens": [1]}]}
    body = {
        "sampling_session_id": name, "seq_id": 0, "prompt": prompt,
        "sampling_params": {"max_tokens": LENGTH},
    }  # fmt: skip
    return dict(await client.post("asample", body))


async def test_the_first_answer_stays(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = SlowSampler(monkeypatch)
    url = front.app.database.url.replace("+psycopg", "")
    async with front.http() as http:
        client = Client(http)
        await client.begin()
        name = await sampler(client)
        future = await asked(client, name)
        await until(lambda: len(trainer.asked) == 1)
        with psycopg.connect(url, autocommit=True) as connection:

            async def taken_by_another() -> bool:
                # In a thread: who holds the row's lock is on this loop.
                await asyncio.to_thread(
                    connection.execute,
                    "UPDATE tuning_operations SET lease_until = now() - interval '1 s'"
                    " WHERE state = 'queued' AND sampler_id <> ''",
                )
                front.app.wake.touch(WAKE_SAMPLES)
                return len(trainer.asked) > 1

            await until(taken_by_another)
        first = (await client.result(future))["sequences"][0]["tokens"]
        assert first[0] > 1
        trainer.asked[0].set()
        await until(lambda: len(trainer.finished) == len(trainer.asked))
        assert trainer.finished.count(True) == 1
        assert (await client.result(future))["sequences"][0]["tokens"] == first
        await until(lambda: objects(front), holds=lambda keys: len(keys) == 1)
        # And it ended once.
        [ended], cursor = await poll(client, name)
        assert (ended, cursor) == (future["request_id"], 1)


async def test_an_answer_that_was_cancelled_leaves_nothing(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = SlowSampler(monkeypatch)
    async with front.http() as http:
        client = Client(http)
        await client.begin()
        name = await sampler(client)
        future = await asked(client, name)
        await until(lambda: len(trainer.asked) == 1)
        await http.post("/api/v1/cancel_future", json={"request_id": future["request_id"]})
        assert "cancelled" in (await client.result(future))["error"]
        trainer.asked[0].set()
        await until(lambda: trainer.finished == [False])
        await until(lambda: objects(front), holds=lambda keys: keys == [])
        assert "cancelled" in (await client.result(future))["error"]
        assert (await poll(client, name))[1] == 1
