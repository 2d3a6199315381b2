"""Jobs that are measured while they train, and weights that are put in place as one version."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.engine_training.engine import TrainedVllm, trained_vllm
from tests.support.engine_training.lessons import (
    ANSWER,
    HELD_OUT,
    TAUGHT,
    answers,
    lesson,
    logprobs,
    samples,
    streaming,
)
from tests.support.engine_training.stopping import is_stopped, stop_at
from tests.support.environments.made_once import tiny_model
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.torch, pytest.mark.vllm, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrainedVllm]:
    """An engine without a folder for checkpoints, which kills what holds it still for long."""
    folder = tmp_path_factory.mktemp("engine")
    with trained_vllm(tiny_model(), folder, WINDLASS_VLLM_FENCE_SECONDS="15") as found:
        yield found


def guard(**words: Any) -> dict[str, Any]:
    return {"samples": samples(HELD_OUT), "every": 20} | words


@pytest.mark.parametrize("mode", ["hogwild", "fenced"])
def test_a_guard_that_trips_puts_the_version_before_back(engine: TrainedVllm, mode: str) -> None:
    """Another answer is taught than the held-out set has, while clients stream."""
    before = logprobs(engine)
    body = lesson([90, 91, 92, 93], mode=mode, guard=guard(max_kl=0.0001))
    with streaming(engine, clients=2):
        job = engine.ended(engine.train(body))
    assert (job["status"], job["reason"]) == ("failed", "guard_tripped")
    assert "the held-out kl of" in job["message"]
    assert (job["steps"], job["kept_steps"]) == (20, 0)
    assert logprobs(engine) == before


def test_a_guard_keeps_the_last_version_that_was_within_its_limits(engine: TrainedVllm) -> None:
    body = lesson([90, 91, 92, 93], epochs=40, guard=guard(every=5, max_kl=0.5))
    job = engine.ended(engine.train(body))
    assert job["reason"] == "guard_tripped"
    assert job["kept_steps"] == job["steps"] - 5


def test_a_job_within_its_limits_ends_with_its_measure(engine: TrainedVllm) -> None:
    job = engine.ended(engine.train(lesson(guard=guard(max_loss=100, max_kl=1000))))
    assert (job["status"], job["guard"]["step"]) == ("succeeded", 200)
    assert answers(engine) == [ANSWER] * len(HELD_OUT)
    assert job["guard"]["held_out_loss"] < 1


def test_a_shadow_is_put_in_place_as_one_version(engine: TrainedVllm) -> None:
    """Answers in between are those of before, to the bit, and so are the steps they report."""
    taught, before = [20, 21, 22, 23], logprobs(engine)
    stop_at(engine.private, "weight-applied", 2000, "SIGSTOP")
    job = engine.train(lesson(taught, mode="shadow"))
    wait_until(lambda: any(map(is_stopped, engine.workers())), seconds=240)
    status = engine.get(f"/train/status/{job}")
    assert 0 < status["steps"] < 200
    assert logprobs(engine) == before
    with streaming(engine, clients=2) as streams:
        _go_on(engine)
        ended = engine.ended(job)
        wait_until(lambda: streams.steps and streams.steps[-1][0] == streams.steps[-1][1])
    assert (ended["status"], ended["steps"]) == ("succeeded", 200)
    assert answers(engine, TAUGHT) == [taught] * len(TAUGHT)
    # All steps of the job came at once: no stream saw some of them alone.
    assert {last - first for first, last in streams.steps} <= {0, 200}


def test_a_shadow_is_put_in_place_every_so_often(engine: TrainedVllm) -> None:
    with streaming(engine, clients=2) as streams:
        job = engine.ended(engine.train(lesson([30, 31], mode="shadow", place_steps=50)))
    assert job["status"] == "succeeded"
    assert {last - first for first, last in streams.steps} <= {0, 50, 100, 150, 200}


def test_a_shadow_that_trips_its_guard_never_was_in_place(engine: TrainedVllm) -> None:
    before = logprobs(engine)
    job = engine.ended(
        engine.train(lesson([80, 81, 82, 83], mode="shadow", guard=guard(max_kl=0.0001)))
    )
    assert (job["reason"], job["kept_steps"]) == ("guard_tripped", 0)
    assert logprobs(engine) == before


def test_a_worker_that_hangs_behind_the_fence_is_killed(engine: TrainedVllm) -> None:
    stop_at(engine.private, "step-begun", 50, "SIGSTOP")
    with streaming(engine, clients=2) as streams:
        job = engine.ended(engine.train(lesson(mode="fenced")))
        ended = streams.ended
        wait_until(lambda: streams.ended > ended)
    assert (job["status"], job["reason"]) == ("failed", "worker_died")
    assert engine.workers() == []


def test_a_backward_pass_that_hangs_ends_with_its_job(engine: TrainedVllm) -> None:
    stop_at(engine.private, "weight-applied", 100, "SIGSTOP")
    with streaming(engine, clients=2):
        job = engine.ended(engine.train(lesson(epochs=500, max_seconds=20)))
    assert not (engine.private / "stop-at").exists()
    assert (job["status"], job["reason"]) == ("failed", "time_exceeded")
    assert engine.workers() == []
    assert engine.ended(engine.train(lesson(epochs=1)))["status"] == "succeeded"


def _go_on(engine: TrainedVllm) -> None:
    for one in engine.workers():
        os.kill(one, signal.SIGCONT)
