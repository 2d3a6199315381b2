"""Jobs that name the runtime they want, through openai-python; an agent says what it has."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import openai
import pytest
from tests.support.services.front_jobs import FrontJobs, running_front_jobs
from tests.support.waiting import until

AT = "windlass.runtime"


@pytest.fixture
async def stage(database_url: str, tmp_path: Path) -> AsyncIterator[FrontJobs]:
    async with running_front_jobs(database_url, tmp_path / "data") as made:
        yield made


def asks(**windlass: Any) -> dict[str, Any]:
    return {"extra_body": {"windlass": windlass}}


async def offers(stage: FrontJobs, key: str, *names: str) -> bool:
    async with stage.http(key) as http:
        found = (await http.get("/v1/runtimes")).json()["data"]
    return [one["id"] for one in found] == list(names)


async def test_a_runtime_says_what_trains_a_job_and_where(stage: FrontJobs) -> None:
    key = await stage.key(await stage.project("main"))
    west = await stage.plane.agent("west", backends=["torchtune"])
    await until(partial(offers, stage, key, "torchtune", "trl"))
    async with stage.front.openai(key) as client:
        frameworks = {}
        for runtime, agent in (("torchtune", west), ("trl", stage.agent)):
            job_id = await stage.create(key, **asks(runtime=runtime))
            await agent.wants(job_id)
            assignment = await agent.run(job_id).assignment()
            frameworks[assignment.backend] = assignment.framework
            job = await client.fine_tuning.jobs.retrieve(job_id)
            assert job.model_extra is not None
            assert job.model_extra["windlass"]["backend"] == runtime
        assert frameworks == {"torchtune": "torchtune", "trl": "trl"}
        job_id = await stage.create(key, **asks(runtime="trl", backend="trl"))
        await stage.agent.wants(job_id)
    await west.close()


async def test_a_runtime_that_is_not_offered_is_refused_by_its_field(stage: FrontJobs) -> None:
    key = await stage.key(await stage.project("main"))
    for windlass, why in (
        ({"runtime": "torchtune"}, "no live cluster offers 'torchtune'.* Offered: trl"),
        ({"runtime": "mlx"}, "no live cluster offers 'mlx' to this project. Offered: trl"),
        ({"runtime": "trll"}, r"Offered: trl\. Did you mean 'trl'\?"),
        ({"runtime": "trl", "backend": "torchtune"}, "a backend other than windlass.backend"),
        ({"runtime": ""}, "is not a valid name"),
        ({"runtime": None}, "expected a string"),
        ({"runtime": ["trl"]}, "expected a string"),
        ({"runtime": "../trl"}, "is not a valid name"),
    ):
        with pytest.raises(openai.BadRequestError, match=why) as refused:
            await stage.create(key, **asks(**windlass))
        assert refused.value.param == AT, windlass


async def test_a_runtime_is_refused_a_method_that_it_has_not(stage: FrontJobs) -> None:
    west = await stage.plane.agent("west", backends=["torchtune"])
    key = await stage.key(await stage.project("main"))
    await until(partial(offers, stage, key, "torchtune", "trl"))
    with pytest.raises(openai.BadRequestError, match="'torchtune' supports") as refused:
        await stage.create(key, **asks(runtime="torchtune", method="kto"))
    assert refused.value.param == AT
    await west.close()
