"""`windlass jobs metrics`: curves on a terminal, rows elsewhere, documents for programs, live."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
from tests.support.processes.shell import Shell
from tests.support.processes.windlass import Windlass
from tests.support.services.front_jobs import FrontJobs, running_front_jobs
from tests.support.services.jobs_plane import ScriptedRun

from windlass.api.runner.v1 import runner_pb2

LOSSES = [2.0, 1.5, 1.25, 1.0]
WEIGHTS = {"adapter_config.json": b"{}", "adapter_model.safetensors": b"weights"}


@pytest.fixture
async def stage(database_url: str, tmp_path: Path) -> AsyncIterator[FrontJobs]:
    async with running_front_jobs(database_url, tmp_path / "data") as made:
        yield made


@pytest.fixture
def shell(stage: FrontJobs, tmp_path: Path) -> Shell:
    return Shell(cast(Windlass, stage.front), tmp_path)


async def measure(run: ScriptedRun, step: int, **values: float) -> None:
    metrics = runner_pb2.StepMetrics(step=step, total_steps=len(LOSSES), epoch=0.5, values=values)
    await run.report(runner_pb2.RunEvent(level=runner_pb2.LEVEL_INFO, metrics=metrics))


async def trained(stage: FrontJobs) -> str:
    """A job that measured some steps and goes on."""
    job = await stage.create(stage.front.owner_key)
    await stage.agent.wants(job)
    run = stage.agent.run(job)
    for step, loss in enumerate(LOSSES, 1):
        await measure(run, step, train_loss=loss, learning_rate=1e-4, grad_norm=3.0)
    await measure(run, len(LOSSES), valid_loss=1.125, full_valid_loss=1.125)
    return job


async def test_a_terminal_shows_curves(stage: FrontJobs, shell: Shell) -> None:
    job = await trained(stage)
    shown = await asyncio.to_thread(shell.on_terminal, "jobs", "metrics", job, "--no-color")
    lines = shown.replace("\r", "").splitlines()
    assert lines[0] == "train_loss 1   valid_loss 1.125"
    assert lines[1].split()[0] == "2"
    assert lines[10].split()[0] == "1"
    assert lines[11].split() == ["1", "4"]
    assert any("\N{BRAILLE PATTERN BLANK}" < sign <= "\u28ff" for sign in "".join(lines))
    assert max(map(len, lines)) <= 80
    asked = await asyncio.to_thread(shell.on_terminal, "jobs", "metrics", job, "-m", "grad_norm")
    assert "grad_norm 3" in asked
    assert "train_loss" not in asked


async def test_a_pipe_gets_rows_and_a_program_documents(stage: FrontJobs, shell: Shell) -> None:
    job = await trained(stage)
    table = (await asyncio.to_thread(shell.data, "jobs", "metrics", job)).splitlines()
    assert table[0].split("  ")[0] == "STEP"
    assert [row.split()[0] for row in table[1:]] == ["1", "2", "3", "4"]
    assert table[1].split()[-2:] == ["2", "-"], "train loss, and no validation at that step"
    assert table[-1].split()[-2:] == ["1", "1.125"]
    one = await asyncio.to_thread(shell.data, "jobs", "metrics", job, "-m", "loss")
    assert one.splitlines()[0].split() == ["STEP", "TRAIN", "LOSS", "VALID", "LOSS"]
    rows = json.loads(await asyncio.to_thread(shell.data, "jobs", "metrics", job, "-o", "json"))
    assert [row["train_loss"] for row in rows] == LOSSES
    assert (rows[-1]["step"], rows[-1]["valid_loss"]) == (4, 1.125)
    refused = await asyncio.to_thread(shell.run, "jobs", "metrics", job, "-m", "lost")
    assert refused.returncode == 2
    assert "'lost'" in refused.stderr
    assert "train_loss" in refused.stderr


async def test_a_follower_sees_each_step_and_the_end(stage: FrontJobs, shell: Shell) -> None:
    job = await trained(stage)

    def follow(*form: str) -> "subprocess.CompletedProcess[str]":
        return shell.run("jobs", "metrics", job, "-f", *form)

    following = [asyncio.create_task(asyncio.to_thread(follow, *f)) for f in ((), ("-o", "json"))]
    terminal = asyncio.create_task(
        asyncio.to_thread(shell.on_terminal, "jobs", "metrics", "-f", job)
    )
    run = stage.agent.run(job)
    run.seq = len(LOSSES) + 1
    await run.upload("FINAL", len(LOSSES))
    await run.finish()
    lines, documents = await asyncio.gather(*following)
    assert (lines.returncode, documents.returncode) == (0, 0), lines.stderr
    told = lines.stdout.splitlines()
    assert told[0] == "step 1/4  grad_norm 3  learning_rate 0.0001  train_loss 2"
    assert len(told) == len(LOSSES) + 1
    assert json.loads(documents.stdout.splitlines()[-1])["valid_loss"] == 1.125
    assert "valid_loss 1.125" in await terminal


async def test_a_job_and_its_checkpoints_tell_the_latest_reward(
    stage: FrontJobs, shell: Shell
) -> None:
    job = await stage.create(stage.front.owner_key)
    await stage.agent.wants(job)
    run = stage.agent.run(job)
    plain = await run.begin_upload("CHECKPOINT", 1, WEIGHTS)
    await stage.plane.upload(plain.uploads, WEIGHTS)
    await run.commit(plain.artifact_id, train_loss=0.5)
    listed = await asyncio.to_thread(shell.data, "jobs", "checkpoints", job)
    assert "REWARD" not in listed
    assert "VALID LOSS" in listed
    await measure(run, 1, train_loss=0.25)
    about = json.loads(await asyncio.to_thread(shell.data, "jobs", "get", job, "-o", "json"))
    assert about["windlass"]["progress"]["train_loss"] == 0.25
    assert about["windlass"]["progress"]["train_mean_reward"] is None
    await measure(run, 2, train_loss=0.125, train_mean_reward=0.625, tokens_per_second=1500.0)
    saved = await run.begin_upload("CHECKPOINT", 2, WEIGHTS)
    await stage.plane.upload(saved.uploads, WEIGHTS)
    await run.commit(saved.artifact_id, train_mean_reward=0.625, full_valid_mean_reward=0.75)
    assert "train_mean_reward 0.625" in await asyncio.to_thread(shell.data, "jobs", "get", job)
    jobs = await asyncio.to_thread(shell.data, "jobs", "list", "-o", "wide")
    assert "reward 0.625 · loss 0.125 · 1,500 tokens/s" in jobs
    listed = await asyncio.to_thread(shell.data, "jobs", "checkpoints", job)
    header, latest, first = listed.splitlines()
    assert header.split("  ")[0] == "ID"
    assert "TRAIN REWARD  VALID REWARD  TRAIN LOSS" in header
    assert latest.split()[2:5] == ["0.625", "0.75", "-"]
    assert first.split()[2:5] == ["-", "-", "0.5"]
    async with stage.front.openai() as client:
        page = await client.fine_tuning.jobs.checkpoints.list(job)
    rewards = {"train_mean_reward": 0.625, "full_valid_mean_reward": 0.75}
    assert page.data[0].metrics.model_extra == rewards


async def test_a_job_without_measurements_says_so(stage: FrontJobs, shell: Shell) -> None:
    job = await stage.create(stage.front.owner_key)
    assert "has no metrics yet" in await asyncio.to_thread(
        shell.on_terminal, "jobs", "metrics", job
    )
    assert await asyncio.to_thread(shell.data, "jobs", "metrics", job, "-o", "json") == "[]"
