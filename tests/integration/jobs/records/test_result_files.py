"""The table of steps that a job leaves: a file of its project like any other."""

from collections.abc import AsyncIterator
from pathlib import Path

import openai
import pytest
from tests.support.services.front_jobs import FrontJobs, running_front_jobs
from tests.support.waiting import until

from windlass_agent.runner.reporting.metrics import History


@pytest.fixture
async def stage(database_url: str, tmp_path: Path) -> AsyncIterator[FrontJobs]:
    async with running_front_jobs(database_url, tmp_path / "data") as made:
        yield made


async def test_a_job_leaves_a_table_that_its_project_reads_and_deletes(
    stage: FrontJobs, tmp_path: Path
) -> None:
    history, table = History(), tmp_path / "step_metrics.csv"
    history.add(1, {"train_loss": 1.5, "train_mean_token_accuracy": 0.25})
    history.add(2, {"train_loss": 1.25, "valid_loss": 1.375})
    history.write(table)
    key = await stage.key(await stage.project("main"))
    job_id = await stage.create(key)
    await stage.agent.wants(job_id)
    run = stage.agent.run(job_id)
    await run.step(2, total=2)
    await run.upload("RESULT_FILE", 2, {table.name: table.read_bytes()})
    await run.upload("FINAL", 2)
    await run.finish()
    async with stage.front.openai(key) as client:

        async def filed() -> list[str]:
            job = await client.fine_tuning.jobs.retrieve(job_id)
            return job.result_files if job.status == "succeeded" else []

        (file_id,) = await until(filed)
        file = await client.files.retrieve(file_id)
        assert (file.filename, file.purpose) == ("step_metrics.csv", "fine-tune-results")
        assert [f.id async for f in client.files.list(purpose="fine-tune-results")] == [file_id]
        assert (await client.files.content(file_id)).text.splitlines() == [
            "step,train_loss,train_accuracy,valid_loss,valid_mean_token_accuracy",
            "1,1.5,0.25,,",
            "2,1.25,,1.375,",
        ]
        for stranger in (await stage.key(await stage.project("side")), await stage.strange_key()):
            async with stage.front.openai(stranger) as other:
                for refused in (other.files.content, other.files.retrieve, other.files.delete):
                    with pytest.raises(openai.NotFoundError):
                        await refused(file_id)
        assert (await client.files.delete(file_id)).deleted
        with pytest.raises(openai.NotFoundError):
            await client.files.content(file_id)
        # It says what the job left, not what is left of it.
        assert (await client.fine_tuning.jobs.retrieve(job_id)).result_files == [file_id]
        model = (await client.fine_tuning.jobs.retrieve(job_id)).fine_tuned_model
        assert model is not None
        assert (await client.models.retrieve(model)).id == model
