"""An engine that may be trained is asked to save before its planned end; a fake plugin answers."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.support.environments.postgres import reachable_folder

from windlass_agent.engines.port import TrainingAccess
from windlass_agent.engines.weights.trained import TrainedEngine

STEPPED = {"job_id": "job-1", "status": "succeeded", "steps": 3}


@asynccontextmanager
async def plugin(jobs: list[Any], *, ends: str = "succeeded") -> AsyncIterator[TrainedEngine]:
    """Yields the way to an engine with some jobs, whose checkpoints end with a status."""

    async def status(_: web.Request) -> web.Response:
        return web.json_response({"jobs": jobs})

    async def checkpoint(_: web.Request) -> web.Response:
        jobs.append({"job_id": "job-save", "status": "queued"})
        return web.json_response(jobs[-1], status=202)

    async def steps(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await answer.prepare(request)
        if not ends:
            await request.app["closed"].wait()
        await answer.write(b"data: " + json.dumps({"status": ends}).encode() + b"\n\n")
        return answer

    app = web.Application()
    app["closed"] = asyncio.Event()
    app.router.add_get("/train/status", status)
    app.router.add_post("/checkpoint", checkpoint)
    app.router.add_get("/train/steps/{job}", steps)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    with reachable_folder() as folder:
        await web.UnixSite(runner, str(folder / "s")).start()
        try:
            yield TrainedEngine(
                f"unix://{folder / 's'}", TrainingAccess(key="key", checkpoints=Path("/none"))
            )
        finally:
            app["closed"].set()
            await runner.cleanup()


async def test_what_was_learned_is_saved() -> None:
    jobs: list[Any] = [STEPPED]
    async with plugin(jobs) as engine:
        assert await engine.save(60)
    assert [one["job_id"] for one in jobs] == ["job-1", "job-save"]


@pytest.mark.parametrize("jobs", [[], [STEPPED | {"steps": 0}]])
async def test_an_engine_that_learned_nothing_is_not_asked(jobs: list[Any]) -> None:
    async with plugin(jobs) as engine:
        assert not await engine.save(60)
    assert all(one["job_id"] != "job-save" for one in jobs)


@pytest.mark.parametrize(("ends", "seconds"), [("failed", 60), ("", 0.1)])
async def test_a_checkpoint_that_fails_or_takes_too_long_ends_the_wait(
    ends: str, seconds: float
) -> None:
    async with plugin([STEPPED], ends=ends) as engine:
        assert not await engine.save(seconds)


async def test_an_engine_that_does_not_answer_is_not_waited_for() -> None:
    gone = TrainedEngine("unix:///nowhere/s", TrainingAccess(key="key", checkpoints=Path("/none")))
    assert not await gone.save(60)
