"""The page on following a job, run as it is printed."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
from tests.support.processes import pages
from tests.support.processes.shell import PROGRAM, Shell
from tests.support.processes.windlass import Windlass
from tests.support.services.front_jobs import FrontJobs, running_front_jobs

PAGE = "how-to/follow-a-job.md"


@pytest.fixture
async def stage(database_url: str, tmp_path: Path) -> AsyncIterator[FrontJobs]:
    async with running_front_jobs(database_url, tmp_path / "data") as made:
        yield made


async def test_the_page_on_following_is_true(stage: FrontJobs, tmp_path: Path) -> None:
    job = await stage.create(stage.front.owner_key)
    await stage.agent.wants(job)
    shell = Shell(cast(Windlass, stage.front), tmp_path)
    environment = shell.environment | shell.owner
    environment["PATH"] = f"{Path(PROGRAM[0]).parent}:{environment['PATH']}"
    commands = f"job={job}\n{pages.script(PAGE)}"
    # The reader follows from before the first step; the job runs meanwhile.
    reading = asyncio.create_task(asyncio.to_thread(pages.run, commands, environment, tmp_path))
    run = stage.agent.run(job)
    for step in (1, 2):
        await run.step(step, total=2, loss=3.0 - step)
    table = b"step,train_loss,train_accuracy,valid_loss,valid_mean_token_accuracy\n1,2.0,,,\n"
    await run.upload("RESULT_FILE", 2, {"step_metrics.csv": table})
    await run.upload("FINAL", 2)
    await run.finish()
    shown = await reading
    assert "Step 2/2" in shown
    assert "The job has successfully completed" in shown
    streamed = (tmp_path / "events.txt").read_text()
    assert streamed.endswith("data: [DONE]\n\n")
    assert '"train_loss":1.0' in streamed
    assert "\n204\n" in shown
    assert not (tmp_path / "rest.txt").read_bytes()
    assert shown.endswith(table.decode())
