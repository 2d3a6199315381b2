"""A vLLM that learns while it serves: one engine, whose weights a process beside it trains."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import torch
from tests.support.engine_training.engine import KEY, NAME, TrainedVllm, trained_vllm
from tests.support.engine_training.lessons import (
    ANSWER,
    HELD_OUT,
    TAUGHT,
    answers,
    lesson,
    question,
    streaming,
)
from tests.support.environments.made_once import tiny_model
from tests.support.processes import pages
from tests.support.waiting import wait_until

from windlass_vllm.checkpoints.diagnosis import diagnose_folder
from windlass_vllm.refusal import TRAINING_REASONS
from windlass_vllm.weights.private_folder import OwnFolder

PAGE = "how-to/use-the-plugin-without-windlass.md"

pytestmark = [pytest.mark.torch, pytest.mark.vllm, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrainedVllm]:
    folder = tmp_path_factory.mktemp("engine")
    variables = {"MEMORY_MIB": "4000", "CHECKPOINTS": str(folder)}
    named = {f"WINDLASS_VLLM_{name}": one for name, one in variables.items()}
    # Routes that reload weights and put an engine to sleep.
    named |= {"VLLM_SERVER_DEV_MODE": "1"}
    with trained_vllm(tiny_model(), folder, **named) as found:
        yield found


def test_an_engine_learns_while_clients_stream(engine: TrainedVllm) -> None:
    assert engine.workers() == []
    assert ANSWER not in answers(engine)
    with streaming(engine, clients=4) as streams:
        job = engine.ended(engine.train(lesson()))
    assert any(first < last for first, last in streams.steps)
    assert all(0 <= first <= last <= 200 for first, last in streams.steps)
    assert (job["status"], job["steps"], job["mode"]) == ("succeeded", 200, "hogwild")
    assert answers(engine) == [ANSWER] * len(HELD_OUT)
    assert len(engine.workers()) == 1


@pytest.mark.long
def test_a_fence_lets_each_step_in_while_serving_stands_still(engine: TrainedVllm) -> None:
    answer, before = [70, 71, 72, 73], counted(engine)
    assert answer not in answers(engine, TAUGHT)
    with streaming(engine, clients=2) as streams:
        job = engine.ended(engine.train(lesson(answer, mode="fenced")))
    assert (job["status"], job["steps"], job["mode"]) == ("succeeded", 200, "fenced")
    assert answers(engine, TAUGHT) == [answer] * len(TAUGHT)
    assert any(first < last for first, last in streams.steps)
    assert counted(engine) == (before[0] + 200, before[1] + 200)


def counted(engine: TrainedVllm) -> tuple[int, int]:
    """The first and the last step that an answer saw which was not streamed."""
    body = {"model": NAME, "prompt": question(1), "max_tokens": 1}
    answer = httpx.post(f"{engine.url}/v1/completions", json=body, timeout=60)
    first, _, last = answer.headers["x-windlass-steps"].partition("-")
    return int(first), int(last)


@pytest.mark.long
def test_both_sides_compute_the_same(engine: TrainedVllm) -> None:
    """A job that moves nothing says the loss of the live weights, which vLLM says too."""
    chosen = engine.complete(question(310), 6, logprobs=0, return_token_ids=True, ignore_eos=True)
    served = chosen["logprobs"]["token_logprobs"]
    sample = {"context_ids": question(310), "continuation_ids": chosen["token_ids"]}
    body = {"samples": [sample], "optimizer": "sgd", "learning_rate": 0}
    job = engine.ended(engine.train(body))
    assert job["last_loss"] == pytest.approx(-sum(served) / len(served), abs=1e-4)


def test_what_vllm_sampled_is_as_likely_to_the_trainer(engine: TrainedVllm) -> None:
    """A policy's datum with the engine's own log-probabilities: each ratio is 1."""
    asked = question(311)
    chosen = engine.complete(asked, 6, logprobs=0, return_token_ids=True, ignore_eos=True)
    ids, prompt = [*asked, *chosen["token_ids"]], [0.0] * (len(asked) - 1)
    served = chosen["logprobs"]["token_logprobs"]
    inputs = {
        "target_tokens": {"dtype": "int64", "data": ids[1:]},
        "logprobs": {"dtype": "float32", "data": prompt + served},
        "advantages": {"dtype": "float32", "data": [*prompt, 1, 2, 3, 4, 5, 6]},
    }
    tokens = {"chunks": [{"type": "encoded_text", "tokens": ids[:-1]}]}
    datum = {"model_input": tokens, "loss_fn_inputs": inputs}
    body = {"datums": [datum], "loss": "importance_sampling", "optimizer": "sgd"}
    job = engine.ended(engine.train(body | {"learning_rate": 0}))
    assert job["last_loss"] == pytest.approx(-21, abs=1e-2)
    answer = engine.post("/train", body | {"loss": "custom"})
    assert (answer.status_code, answer.json()["error"]["reason"]) == (400, "invalid_request")


def test_no_answer_after_a_job_builds_on_older_keys_and_values(engine: TrainedVllm) -> None:
    ids = [1 + one % 300 for one in range(300)]

    def first(salt: str) -> float:
        chosen = engine.complete(ids, 1, logprobs=0, cache_salt=salt)
        return float(chosen["logprobs"]["token_logprobs"][0])

    before = first("kept")
    with streaming(engine, clients=1):
        engine.ended(engine.train(lesson([50, 51, 52, 53], epochs=2)))
    after, fresh = first("kept"), first("new")
    assert after == pytest.approx(fresh, abs=1e-4)
    assert after != pytest.approx(before, abs=1e-4)


def test_a_checkpoint_is_what_the_engine_serves(engine: TrainedVllm) -> None:
    """A folder of its own, which transformers reads; the one that vLLM loaded stays."""
    from transformers import AutoModelForCausalLM

    loaded = (engine.model / "model.safetensors").read_bytes()
    engine.ended(engine.train(lesson(epochs=1)))
    job = engine.ended(str(engine.post("/checkpoint").json()["job_id"]))
    assert job["status"] == "succeeded", job
    again = engine.ended(str(engine.post("/checkpoint").json()["job_id"]))
    assert (again["folder"], again["version"]) == (job["folder"], job["version"])
    found = diagnose_folder(Path(job["folder"]))
    assert (found.whole, found.version, found.settled) == (True, job["version"], job["version"])
    chosen = engine.complete(question(300), 1, logprobs=0, return_token_ids=True)
    model = AutoModelForCausalLM.from_pretrained(job["folder"])
    with torch.no_grad():
        logits = model(torch.tensor([question(300)])).logits[0, -1].log_softmax(-1)
    served = chosen["logprobs"]["token_logprobs"][0]
    assert float(logits[chosen["token_ids"][0]]) == pytest.approx(served, abs=1e-4)
    assert (engine.model / "model.safetensors").read_bytes() == loaded


def test_steps_are_streamed(engine: TrainedVllm) -> None:
    job = engine.train(lesson(epochs=1, idempotency_key="streamed"))
    assert engine.train(lesson(epochs=1, idempotency_key="streamed")) == job
    headers = {"authorization": f"Bearer {KEY}"}
    said = httpx.get(f"{engine.url}/train/steps/{job}", headers=headers, timeout=120).text
    assert said.count('"step":') == 20
    assert '"status":"succeeded"' in said.splitlines()[-2]


def stepping(engine: TrainedVllm, job: str) -> int:
    """Waits until a job is in the middle, and returns its steps."""
    return int(wait_until(lambda: engine.get(f"/train/status/{job}")["steps"], seconds=120))


@pytest.mark.long
def test_a_killed_worker_ends_its_job_and_nothing_else(engine: TrainedVllm) -> None:
    job = engine.train(lesson(epochs=5000))
    waiting = engine.train(lesson(epochs=5))
    with streaming(engine, clients=2):
        steps = stepping(engine, job)
        (worker,) = engine.workers()
        os.kill(worker, signal.SIGKILL)
        ended = engine.ended(job)
    assert (ended["status"], ended["reason"]) == ("failed", "worker_died")
    assert steps <= ended["steps"] < ended["total_steps"]
    assert engine.ended(waiting)["status"] == "succeeded"
    assert answers(engine) == [ANSWER] * len(HELD_OUT)
    assert engine.workers() != [worker]


@pytest.mark.long
def test_a_step_without_memory_ends_its_job_and_not_the_worker(engine: TrainedVllm) -> None:
    sample = {"context_ids": question(1), "continuation_ids": [9] * 370}
    job = engine.ended(engine.train({"samples": [sample] * 256, "batch": 256}))
    assert (job["status"], job["reason"], job["steps"]) == ("failed", "out_of_memory", 0)
    assert engine.ended(engine.train(lesson(epochs=1)))["status"] == "succeeded"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/train"),
        ("GET", "/train/status"),
        ("GET", "/train/status/job"),
        ("GET", "/train/steps/job"),
        ("POST", "/train/cancel/job"),
        ("POST", "/checkpoint"),
    ],
)
def test_nobody_trains_without_the_key(engine: TrainedVllm, method: str, path: str) -> None:
    for given in ({}, {"authorization": "Bearer other"}, {"authorization": f"Basic {KEY}"}):
        answer = httpx.request(method, engine.url + path, headers=given, timeout=30)
        assert (answer.status_code, answer.json()["error"]["reason"]) == (401, "unauthenticated")


def test_what_cannot_be_trained_is_refused_at_once(engine: TrainedVllm) -> None:
    jobs = engine.get("/train/status")["jobs"]
    for ids in ([648], [], [-1]):
        sample = {"context_ids": [1], "continuation_ids": ids}
        answer = engine.post("/train", {"samples": [sample]})
        assert answer.status_code == 400
        assert "samples[0].continuation_ids" in answer.json()["error"]["message"]
    assert engine.post("/train", {"samples": ["a" * 2**24]}).status_code == 413
    assert engine.post("/train/cancel/other").status_code == 404
    assert engine.get("/train/status")["jobs"] == jobs


def test_the_page_teaches_and_keeps(engine: TrainedVllm, tmp_path: Path) -> None:
    script = pages.script(PAGE, {"http://127.0.0.1:8000": engine.url})
    printed = pages.run(script, os.environ | {"WINDLASS_VLLM_KEY": KEY}, tmp_path)
    assert printed.count('"status":"succeeded"') == 7
    chosen = engine.complete([5, 6, 7, 102, 8], 3, return_token_ids=True)
    assert chosen["token_ids"] == [60, 61, 62]


def test_the_page_has_every_reason() -> None:
    text = (pages.DOCS / PAGE).read_text()
    said = re.findall(r"^\| `(\w+)` \|", text.partition("## When")[2], re.MULTILINE)
    assert said == sorted(TRAINING_REASONS)


def test_jobs_are_cancelled_and_end_in_time(engine: TrainedVllm) -> None:
    job, late = engine.train(lesson(epochs=5000)), engine.train(lesson(epochs=5000, max_seconds=1))
    again = engine.train(lesson(epochs=5000))
    stepping(engine, job)
    assert engine.post(f"/train/cancel/{again}").json()["status"] == "cancelled"
    assert engine.post(f"/train/cancel/{job}").status_code == 202
    assert engine.ended(job)["status"] == "cancelled"
    assert engine.ended(late)["reason"] == "time_exceeded"
    assert engine.get(f"/train/status/{again}")["steps"] == 0


@pytest.mark.long
def test_an_engine_that_loads_anew_is_trained_anew(engine: TrainedVllm) -> None:
    # Jobs that were cancelled before have left what nobody knows.
    loads_anew(engine)
    engine.ended(engine.train(lesson()))
    assert answers(engine) == [ANSWER] * len(HELD_OUT)
    loads_anew(engine)
    assert ANSWER not in answers(engine)
    engine.post("/sleep?level=1").raise_for_status()
    asleep = engine.ended(engine.train(lesson()))
    assert (asleep["status"], asleep["reason"], asleep["steps"]) == ("failed", "engine_asleep", 0)
    engine.post("/wake_up").raise_for_status()
    assert engine.ended(engine.train(lesson()))["status"] == "succeeded"
    assert answers(engine) == [ANSWER] * len(HELD_OUT)


def loads_anew(engine: TrainedVllm) -> None:
    """Has the engine serve its model's folder again."""
    engine.post("/collective_rpc", {"method": "reload_weights"}).raise_for_status()
    engine.post("/reset_prefix_cache").raise_for_status()


@pytest.mark.long
def test_a_killed_api_server_leaves_nothing(engine: TrainedVllm) -> None:
    """The last test of this engine: what remains of it is removed by the next one's folder."""
    stepping(engine, engine.train(lesson(epochs=5000)))
    assert len(engine.workers()) == 1
    engine.process.kill()
    wait_until(lambda: not engine.workers())
    OwnFolder(engine.private).close()
    assert list(engine.private.iterdir()) == []
