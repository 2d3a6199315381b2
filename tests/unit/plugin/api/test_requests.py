"""Requests to train are refused before anything runs, and name the field."""

import json
from typing import Any

import pytest

from windlass_vllm.api.jobs import MOST_WAITING, JobQueue
from windlass_vllm.api.requests import Bounds, TrainRequest, read_request
from windlass_vllm.messages import (
    JobEnded,
    StepDone,
    TokenSample,
    Train,
    frames,
    from_worker,
    to_worker,
)
from windlass_vllm.optimizers.settings import OptimizerSettings
from windlass_vllm.refusal import Refused

BOUNDS = Bounds(vocabulary=100, context=8)
GOOD: dict[str, Any] = {"samples": [{"context_ids": [1, 99], "continuation_ids": [3, 4]}]}


def sample(**words: Any) -> dict[str, Any]:
    return {"samples": [GOOD["samples"][0], GOOD["samples"][0] | words]}


def test_what_is_within_bounds_is_taken() -> None:
    body = json.dumps(GOOD | {"optimizer": "sgd", "epochs": 3, "batch": 2, "learning_rate": 0.1})
    request = read_request(body.encode(), BOUNDS)
    assert (request.steps, request.settings.kind) == (3, "sgd")
    assert request.samples == (TokenSample((1, 99), (3, 4)),)
    mini = read_request(json.dumps(GOOD).encode(), BOUNDS).settings
    assert (mini.kind, mini.rank, mini.scaling) == ("apollo", 1, "tensor")


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (sample(context_ids=[100]), r"samples\[1\].context_ids"),
        (sample(continuation_ids=[-1]), r"samples\[1\].continuation_ids"),
        (sample(continuation_ids=[]), r"samples\[1\].continuation_ids"),
        (sample(context_ids=[]), r"samples\[1\].context_ids"),
        (sample(context_ids=[1] * 7), "exceed a context of 8"),
        (sample(context_ids=[1.5]), r"context_ids"),
        (sample(context_ids=[2**70]), r"context_ids"),
        (sample(weights=[1]), r"samples\[1\].weights"),
        (sample(weights=[0, 0]), r"samples\[1\].weights"),
        (sample(weights=[1, -1]), r"samples\[1\].weights"),
        (sample(text="a"), "text"),
        ({"samples": []}, "samples"),
        ({}, "samples"),
        (GOOD | {"learning_rate": -1}, "learning_rate"),
        (GOOD | {"learning_rate": "NaN"}, "learning_rate"),
        (GOOD | {"epochs": 0}, "epochs"),
        (GOOD | {"epochs": 100_001}, "epochs"),
        (GOOD | {"optimizer": "adam"}, "optimizer"),
        (GOOD | {"mode": "other"}, "mode"),
        (GOOD | {"place_steps": 2}, "place_steps"),
        (GOOD | {"save_steps": -1}, "save_steps"),
        (GOOD | {"guard": {"samples": []}}, "guard.samples"),
        (GOOD | {"guard": GOOD | {"every": 0}}, "guard.every"),
        (GOOD | {"guard": GOOD | {"max_kl": -1}}, "guard.max_kl"),
        (GOOD | {"guard": sample(continuation_ids=[100])}, r"guard.samples\[1\].continuation_ids"),
        (GOOD | {"max_seconds": 10**9}, "max_seconds"),
        (GOOD | {"idempotency_key": ""}, "idempotency_key"),
        (GOOD | {"other": 1}, "other"),
    ],
)
def test_what_is_not_is_refused_by_its_field(body: dict[str, Any], named: str) -> None:
    with pytest.raises(Refused, match=named) as error:
        read_request(json.dumps(body).encode(), BOUNDS)
    assert error.value.reason == "invalid_request"


@pytest.mark.parametrize("body", [b"", b"[", b"[" * 100_000, b'{"learning_rate": NaN}', b"\xff"])
def test_what_is_no_json_is_refused(body: bytes) -> None:
    with pytest.raises(Refused):
        read_request(body, BOUNDS)


def request(**words: Any) -> TrainRequest:
    return read_request(json.dumps(GOOD | words).encode(), BOUNDS)


async def test_a_key_is_one_job_and_of_one_request() -> None:
    queue = JobQueue()
    first = await queue.submit(request(idempotency_key="a"))
    assert await queue.submit(request(idempotency_key="a")) is first
    assert await queue.submit(request()) is not first
    with pytest.raises(Refused) as error:
        await queue.submit(request(idempotency_key="a", epochs=2))
    assert error.value.reason == "idempotency_conflict"


async def test_ten_thousand_jobs_at_once_are_bounded() -> None:
    queue, refused = JobQueue(), 0
    for _ in range(10_000):
        try:
            await queue.submit(request())
        except Refused as error:
            refused += error.reason == "queue_full"
    assert (len(queue.jobs), refused) == (MOST_WAITING, 10_000 - MOST_WAITING)
    for _ in range(1000):
        job = await queue.next()
        await queue.end(job, JobEnded(job.name, "succeeded", 1))
        await queue.submit(request())
    assert len(queue.jobs) < 300


async def test_a_job_cancelled_while_it_waits_never_runs() -> None:
    queue = JobQueue()
    first, second = [await queue.submit(request()) for _ in range(2)]
    assert (await queue.cancel(first.name)).state == "cancelled"
    assert await queue.next() is second


async def test_steps_are_followed_from_the_first_to_the_end() -> None:
    queue = JobQueue()
    job = await queue.submit(request())
    job.step(StepDone(job.name, 1, 3.0, 2, 0.1))
    found = job.follow()
    assert (await anext(found)).step == 1
    job.step(StepDone(job.name, 2, 2.0, 2, 0.1))
    await queue.end(job, JobEnded(job.name, "succeeded", 2))
    assert [one.step async for one in found] == [2]
    assert (job.record.first_loss, job.record.last_loss) == (3.0, 2.0)


def test_a_message_cut_at_any_byte_or_of_others_is_none() -> None:
    train = Train("job", (TokenSample((1,), (2,)),), 1, 1, OptimizerSettings())
    token, content = frames(train, b"token")
    assert to_worker([token, content], b"token") == train
    assert to_worker([b"other", content], b"token") is None
    assert from_worker([token, content], b"token") is None
    assert to_worker([token, content, b""], b"token") is None
    for cut in range(len(content)):
        assert to_worker([token, content[:cut]], b"token") is None


def test_a_guard_whose_distributions_fill_the_memory_is_refused() -> None:
    many = json.dumps(GOOD | {"guard": {"samples": GOOD["samples"] * 1000}}).encode()
    bounds = Bounds(vocabulary=200_000, context=8)
    with pytest.raises(Refused, match=r"guard\.samples: 2000 tokens exceed 671"):
        read_request(many, bounds)


async def test_versions_without_a_folder_are_refused() -> None:
    with pytest.raises(Refused) as error:
        await JobQueue().submit(request(save_steps=1))
    assert error.value.reason == "no_checkpoints"
