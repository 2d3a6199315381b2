"""What becomes of jobs where an engine has died, and of those that died with one.

The engine is a stub, without which no engine dies at the moment that is wanted; real ones are
killed in tests/integration/plugin/test_restarted_engine.py.
"""

import asyncio
import json
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from tests.support.waiting import until

from windlass_vllm.api import training as training_module
from windlass_vllm.api.attached_worker import TrainedEngine
from windlass_vllm.api.job_files import JobFiles
from windlass_vllm.api.jobs import EngineJob, JobQueue
from windlass_vllm.api.requests import Bounds, TrainRequest, read_request
from windlass_vllm.api.training import EngineTraining
from windlass_vllm.run_folder import RunFolder, SavedProgress
from windlass_vllm.settings import EngineTrainingSettings

BOUNDS = Bounds(vocabulary=9, context=9)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose name leaves room for a socket."""
    with tempfile.TemporaryDirectory(prefix="w-") as name:
        yield Path(name)


class BrokenEngine:
    """An engine that answers nothing any more; `errored` as vLLM's client says it."""

    def __init__(self, *, errored: bool) -> None:
        self.errored = errored

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def broken(*_: object, **__: object) -> Any:
            raise RuntimeError(f"{name}: the engine is gone")

        return broken


def request() -> TrainRequest:
    body = {"samples": [{"context_ids": [1], "continuation_ids": [2]}], "epochs": 9}
    return read_request(json.dumps(body).encode(), BOUNDS)


def settings(folder: Path) -> EngineTrainingSettings:
    return EngineTrainingSettings(folder=str(folder), checkpoints=str(folder / "runs"), run="a")


def queue_of(folder: Path) -> JobQueue:
    """The queue as the next API server reads it."""
    return JobQueue(JobFiles(RunFolder(folder / "runs" / "run-a")))


async def written(folder: Path, **words: object) -> str:
    """A job that an API server was killed with; `words` are of its record."""
    queue = queue_of(folder)
    job = await queue.submit(request())
    job.begin(0)
    for name, value in words.items():
        setattr(job.record, name, value)
    await queue.keep(job)
    return job.name


async def ran(folder: Path, engine: BrokenEngine) -> EngineJob:
    """The only job of a run, once the next API server has ended it or itself."""
    training = EngineTraining(cast(TrainedEngine, engine), "model", BOUNDS, settings(folder))
    (job,) = training.queue.jobs.values()
    running = asyncio.create_task(training.run())
    ended = asyncio.create_task(_drained(job))
    either: set[asyncio.Task[None]] = {running, ended}
    await asyncio.wait(either, timeout=30, return_when=asyncio.FIRST_COMPLETED)
    for task in (running, ended):
        task.cancel()
    await asyncio.gather(running, ended, return_exceptions=True)
    training.close()
    return job


async def _drained(job: EngineJob) -> None:
    async for _ in job.follow():
        pass


async def test_a_job_that_ended_three_engines_is_begun_no_more(folder: Path) -> None:
    await written(folder, attempts=3)
    job = await ran(folder, BrokenEngine(errored=False))
    assert job.described()["reason"] == "worker_died"


async def test_a_job_that_was_cancelled_ends_with_the_next_server(folder: Path) -> None:
    await written(folder, is_cancelled=True, steps=7)
    job = await ran(folder, BrokenEngine(errored=False))
    assert (job.state, job.steps) == ("cancelled", 0)


async def test_an_engine_is_behind_until_the_newest_version_was_tried(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it cannot be put back: it serves what its own folder has, and the log says why."""
    engine = cast(TrainedEngine, BrokenEngine(errored=False))
    without = EngineTraining(engine, "model", BOUNDS, settings(folder / "other"))
    assert not without.is_behind
    without.close()
    saved = SavedProgress("step-3", 3)
    monkeypatch.setattr(RunFolder, "progress", lambda _: saved)
    training = EngineTraining(engine, "model", BOUNDS, settings(folder))
    assert training.is_behind
    running = asyncio.create_task(training.run())
    await until(lambda: not training.is_behind)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    training.close()


@pytest.mark.parametrize("errored", [True, False])
async def test_what_fails_with_the_engine_waits_for_the_next_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch, errored: bool
) -> None:
    monkeypatch.setattr(training_module, "_DYING_SECONDS", 0.2)
    name = await written(folder)
    await ran(folder, BrokenEngine(errored=errored))
    found = queue_of(folder).jobs[name]
    assert found.state == ("queued" if errored else "failed")
