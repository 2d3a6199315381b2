"""Requests to train are refused before anything runs, and name the field."""

import asyncio
import json
from typing import Any

import pytest

from windlass_vllm.api.jobs import MOST_WAITING, JobQueue
from windlass_vllm.api.requests import Bounds, TrainRequest, job_name, read_request
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
FLOATS = {"data": [0.0, 0.5, 1], "dtype": "float32"}
DATUM: dict[str, Any] = {
    "model_input": {"chunks": [{"type": "encoded_text", "tokens": [1, 2]}, {"tokens": [99]}]},
    "loss_fn_inputs": {
        "target_tokens": {"data": [2, 99, 4], "dtype": "int64", "shape": [3]},
        "logprobs": FLOATS,
        "advantages": FLOATS,
    },
}
POLICY: dict[str, Any] = {"datums": [DATUM], "loss": "ppo"}
GOOD: dict[str, Any] = {"samples": [{"context_ids": [1, 99], "continuation_ids": [3, 4]}]}


def sample(**words: Any) -> dict[str, Any]:
    return {"samples": [GOOD["samples"][0], GOOD["samples"][0] | words]}


def datum(number: Any = FLOATS, **words: Any) -> dict[str, Any]:
    """A body whose second datum has other words, and other advantages."""
    other = DATUM | words
    if "loss_fn_inputs" not in words:
        other |= {"loss_fn_inputs": DATUM["loss_fn_inputs"] | {"advantages": number}}
    return POLICY | {"datums": [DATUM, other]}


def tokens(*ids: Any) -> dict[str, Any]:
    return datum(model_input={"chunks": [{"tokens": list(ids)}]})


def inputs(**words: Any) -> dict[str, Any]:
    return datum(loss_fn_inputs=DATUM["loss_fn_inputs"] | words)


def test_what_is_within_bounds_is_taken() -> None:
    body = json.dumps(GOOD | {"optimizer": "sgd", "epochs": 3, "batch": 2, "learning_rate": 0.1})
    request = read_request(body.encode(), BOUNDS)
    assert (request.steps, request.settings.kind) == (3, "sgd")
    assert request.samples == (TokenSample((1, 99), (3, 4)),)
    mini = read_request(json.dumps(GOOD).encode(), BOUNDS).settings
    assert (mini.kind, mini.rank, mini.scaling) == ("apollo", 1, "tensor")


def test_datums_are_taken_with_all_settings_of_their_loss() -> None:
    body = POLICY | {"loss_config": {"clip_low_threshold": 0}, "epochs": 3}
    found = read_request(json.dumps(body).encode(), BOUNDS)
    assert (found.steps, found.datums[0].tokens, found.datums[0].length) == (3, (1, 2, 99), 3)
    work = found.work("job", 1, "", "")
    assert (work.datums, work.loss, work.steps) == (found.datums, "ppo", 3)
    assert work.settings == {"clip_low_threshold": 0.0, "clip_high_threshold": 1.2}
    token, content = frames(work, b"token")
    assert to_worker([token, content], b"token") == work


def test_a_pass_and_a_single_step_name_the_request_before() -> None:
    adam = {"beta1": 0.8, "beta2": 0.95, "eps": 1e-12, "weight_decay": 0.1, "clip_norm": 2}
    step = {"one_step": True, "continues": "before", "optimizer": "adamw", "adam": adam}
    found = read_request(json.dumps(POLICY | step).encode(), BOUNDS)
    work = found.work("job", 1, "", "")
    assert (found.steps, work.steps, work.is_chained, work.clip_norm) == (1, 1, True, 2.0)
    assert work.continues == job_name("before") != "before"
    numbers = work.optimizer
    assert (numbers.kind, numbers.beta1, numbers.beta2) == ("adamw", 0.8, 0.95)
    assert (numbers.eps, numbers.weight_decay) == (1e-12, 0.1)
    only = read_request(json.dumps(POLICY | {"forward_only": True}).encode(), BOUNDS)
    assert (only.steps, only.work("job", 1, "", "").continues) == (0, "")


def test_outputs_of_the_newest_passes_alone_are_kept() -> None:
    async def run() -> list[bytes | None]:
        queue = JobQueue()
        request = read_request(json.dumps(POLICY | {"forward_only": True}).encode(), BOUNDS)
        jobs = [await queue.submit(request) for _ in range(10)]
        for number, job in enumerate(jobs):
            queue.computed(job, bytes([number]))
        return [job.outputs for job in jobs]

    assert asyncio.run(run()) == [None, None, *(bytes([one]) for one in range(2, 10))]


def test_a_position_may_have_several_targets() -> None:
    several = {"data": [1, 2, 3, 4, 5, 6], "shape": [3, 2]}
    given = {"target_tokens": several | {"dtype": "int64"}}
    given |= {"weights": several | {"dtype": "float32"}}
    body: dict[str, Any] = {"loss": "cross_entropy"}
    body |= {"datums": [DATUM | {"loss_fn_inputs": given}]}
    assert read_request(json.dumps(body).encode(), BOUNDS).steps == 1
    policy = inputs(**{"target_tokens": several | {"dtype": "int64"}})
    with pytest.raises(Refused, match="target_tokens: of the shape"):
        read_request(json.dumps(policy).encode(), BOUNDS)


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (tokens(100), r"datums\[1\].model_input: ids are from 0 up to 100"),
        (tokens(-1, 0, 0), r"datums\[1\].model_input: ids are"),
        (tokens(), r"datums\[1\].model_input: 0 tokens"),
        (tokens(*[1] * 9), r"datums\[1\].model_input: 9 tokens, where a context has 1 to 8"),
        (tokens(1.5), "model_input"),
        (datum(model_input={"chunks": [{"type": "image", "tokens": []}]}), "type"),
        (tokens(1, 2), r"datums\[1\].loss_fn_inputs.target_tokens: of the shape \(3,\)"),
        (datum(FLOATS | {"data": [1]}), r"datums\[1\].loss_fn_inputs.advantages: 1 numbers"),
        (datum(FLOATS | {"shape": [3, 1]}), "advantages: 3 numbers of the shape"),
        (datum(FLOATS | {"shape": [4]}), "advantages: 3 numbers of the shape"),
        (datum(FLOATS | {"shape": [1] * 5}), "shape"),
        (datum(FLOATS | {"data": [1, 1, 1e39]}), "advantages: finite"),
        (datum(FLOATS | {"data": [1, 1, 2**200]}), "advantages: finite"),
        (datum(FLOATS | {"data": [1, 1, "NaN"]}), "data"),
        (datum(FLOATS | {"dtype": "int64", "data": [1, 1, 1]}), "advantages: of float32"),
        (datum(FLOATS | {"dtype": "bfloat16"}), "dtype"),
        (datum({"data": [1, 1, 1]}), "dtype"),
        (inputs(target_tokens=FLOATS), "target_tokens: of int64"),
        (inputs(target_tokens={"data": [1, 2, 2**70], "dtype": "int64"}), "target_tokens: ids"),
        (inputs(target_tokens={"data": [1, 2, -1], "dtype": "int64"}), "target_tokens: ids"),
        (inputs(weights=FLOATS), "loss_fn_inputs.weights: ppo takes no such input"),
        (POLICY | {"loss": "cross_entropy"}, "loss_fn_inputs.weights: cross_entropy needs it"),
        (datum(loss_fn_inputs={}), r"datums\[1\].loss_fn_inputs.advantages: ppo needs it"),
        (POLICY | {"loss": "custom"}, "loss: graphs of custom losses"),
        (POLICY | {"loss": "__class__"}, "loss: one of cross_entropy, importance_sampling"),
        ({"datums": [DATUM]}, "loss: one of"),
        (POLICY | {"loss_config": {"beta": 1}}, "loss_config: ppo has no setting 'beta'"),
        (POLICY | {"loss_config": {"clip_low_threshold": -1}}, "loss_config.clip_low_threshold"),
        (POLICY | {"loss_config": {"clip_high_threshold": 1e39}}, "loss_config.clip_high_thresh"),
        (POLICY | {"loss_config": {"clip_low_threshold": 2}}, "above the high one"),
        (POLICY | {"loss_config": {"clip_low_threshold": "1"}}, "loss_config"),
        (GOOD | {"one_step": True}, "datums: a pass or a single step"),
        (POLICY | {"one_step": True, "forward_only": True}, "one_step: a pass"),
        (POLICY | {"one_step": True, "mode": "shadow"}, "mode: a pass or"),
        (POLICY | {"one_step": True, "epochs": 2}, "epochs: a pass or"),
        (POLICY | {"forward_only": True, "save_steps": 1}, "save_steps: a pass"),
        (POLICY | {"one_step": True, "adam": {}}, "adam: a pass or"),
        (POLICY | {"one_step": True, "optimizer": "adamw", "adam": {"eps": 0}}, "adam.eps"),
        (POLICY | {"one_step": True, "optimizer": "adamw", "adam": {"beta1": 1}}, "adam.beta1"),
        (POLICY | {"continues": "x"}, "continues: of one_step"),
        (POLICY | {"adam": {}, "optimizer": "adamw"}, "adam: of one_step"),
        (GOOD | POLICY, "datums: a request has samples or datums, not both"),
        (GOOD | {"loss": "ppo"}, "loss: samples have their own"),
        (POLICY | {"epochs": 100_000, "datums": [DATUM] * 2}, "epochs"),
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
