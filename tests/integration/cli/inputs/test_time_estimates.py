"""How long a training takes, by the speed of an earlier one."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
from tests.support.processes.shell import Shell
from tests.support.processes.windlass import Windlass
from tests.support.services.front_jobs import FrontJobs, running_front_jobs

from windlass.api.runner.v1 import runner_pb2

ROW = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
SPEEDS = [900.0, 100.0, 120.0, 110.0, 5.0]


@pytest.fixture
async def stage(database_url: str, tmp_path: Path) -> AsyncIterator[FrontJobs]:
    async with running_front_jobs(database_url, tmp_path / "data") as made:
        yield made


async def trained(stage: FrontJobs, key: str, speeds: list[float]) -> str:
    """A job that has succeeded, and measured these speeds."""
    job = await stage.create(key)
    await stage.agent.wants(job)
    run = stage.agent.run(job)
    for step, speed in enumerate(speeds, 1):
        values = {"train_loss": 1.0, "tokens_per_second": speed}
        metrics = runner_pb2.StepMetrics(step=step, total_steps=len(speeds), values=values)
        await run.report(runner_pb2.RunEvent(level=runner_pb2.LEVEL_INFO, metrics=metrics))
    await run.upload("FINAL", len(speeds))
    await run.finish()
    return job


async def test_a_job_of_the_model_tells_the_speed(stage: FrontJobs, tmp_path: Path) -> None:
    key = await stage.key(await stage.project("main"))
    shell = Shell(cast(Windlass, stage.front), tmp_path)
    rows = tmp_path / "rows.jsonl"
    rows.write_text(f"{json.dumps(ROW)}\n" * 400)

    async def check(*options: str) -> dict[str, Any]:
        asked = ("files", "check", str(rows), *options, "-o", "json")
        mine = {"WINDLASS_API_KEY": key}
        done = await asyncio.to_thread(shell.run, *asked, environment=mine)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    before = (await check("--model", "tiny"))["time"]
    assert (before["seconds"], "a job that trained the server's model" in before["basis"]) == (
        None,
        True,
    )
    await trained(stage, key, [7.0])
    job = await trained(stage, key, SPEEDS)
    found = await check("--model", "tiny")
    tokens = found["training"]["tokens"]
    assert tokens == found["training"]["n_epochs"] * found["tokens"]["total"]
    assert found["time"]["seconds"] == -(-tokens // 110), "the newest one's median"
    assert found["time"]["basis"].startswith(f"training steps at 110 tokens/s, of {job}, ")
    given = await check("--model", "tiny", "--tokens-per-second", "1000")
    assert given["time"]["seconds"] == -(-tokens // 1000)
    other = await check("--model", "tiny", "--method", "distillation")
    assert other["time"]["seconds"] is None, "of another method"
    owned = await check("--tokens-per-second", "100")
    assert owned["time"]["basis"].startswith("training steps at 100 tokens/s, as given;")
