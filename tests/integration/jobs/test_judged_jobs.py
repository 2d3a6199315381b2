"""Jobs whose graders ask models: what is admitted, and what an attempt's runner may ask for.

Everything is real but for the engine, whose words are scripted, and the agent; that a whole server
does it with models alone is in test_train_with_rewards.py.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import grpc
import openai
import pytest
import sqlalchemy as sa
from aiohttp import web
from tests.integration.graders.test_graders import says
from tests.support.environments.sandbox import needed_sandbox
from tests.support.services.front import Engine, running_engine
from tests.support.services.front_jobs import FrontJobs, import_model, running_front_jobs
from tests.support.services.front_usage import used
from tests.support.services.jobs_plane import ScriptedRun, Tenant
from tests.support.waiting import PATIENCE, until
from tests.unit.graders.test_definitions import CHECK, LABEL, PYTHON, SCORE

from windlass.api.jobs.v1 import jobs_pb2 as pb
from windlass.api.runner.v1 import runner_pb2
from windlass.api.usage.v1 import usage_pb2
from windlass.core.errors import from_rpc

JUDGE = {**SCORE, "model": "judge"}
MULTI = {
    "type": "multi",
    "name": "both",
    "graders": {"exact": CHECK, "judge": JUDGE},
    "calculate_output": "0.5 * exact + 0.5 * judge",
}
PROMPT = {"messages": [{"role": "user", "content": "What is your name?"}], "answer": "Windlass."}
AT = "method.reinforcement.grader"


@pytest.fixture
async def jobs(database_url: str, tmp_path: Path) -> AsyncIterator[FrontJobs]:
    inference = {"hold_seconds": 1}
    async with running_front_jobs(database_url, tmp_path / "data", inference=inference) as made:
        yield made


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    async with running_engine() as made:
        made.handler = says("0.5")
        yield made


async def member(jobs: FrontJobs, title: str = "ours") -> tuple[str, str]:
    """A project, and the key of one who works in it."""
    project = await jobs.project(title)
    return project, await jobs.key(project)


async def judged(jobs: FrontJobs, engine: Engine, title: str = "ours") -> tuple[str, str]:
    """A project with a model `judge` of its own, which the engine serves."""
    project, key = await member(jobs, title)
    await import_model(jobs.front, "judge", key=await jobs.key(project, "project_owner"))
    jobs.front.board.pin("judge", engine.address, project_id=project)
    return project, key


async def create(jobs: FrontJobs, key: str, grader: Any = JUDGE, **fields: Any) -> str:
    content = (json.dumps(PROMPT) + "\n").encode() * 4
    async with jobs.front.openai(key) as client:
        file = await client.files.create(file=("x.jsonl", content), purpose="fine-tune")
        method: Any = {"type": "reinforcement", "reinforcement": {"grader": grader}}
        job = await client.fine_tuning.jobs.create(
            model="tiny", training_file=file.id, method=method, **fields
        )
    return str(job.id)


async def begun(jobs: FrontJobs, key: str, grader: Any = JUDGE) -> ScriptedRun:
    job_id = await create(jobs, key, grader)
    await jobs.agent.wants(job_id)
    await jobs.agent.says(job_id, "RUNNING")
    return jobs.agent.run(job_id)


async def grade(run: ScriptedRun, *samples: str, batch: str = "1") -> runner_pb2.GradeResponse:
    item = json.dumps({"answer": "Windlass."}).encode()
    answers = [runner_pb2.Answer(sample=sample, item=item) for sample in samples]
    request = runner_pb2.GradeRequest(batch=batch, answers=answers)
    response = await run.call("Grade", pb.RunGradeRequest(batch=request))
    assert isinstance(response, runner_pb2.GradeResponse)
    return response


async def reason(call: Awaitable[object]) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    return from_rpc(refused.value).reason


async def test_a_judge_that_the_project_has_not_is_refused_by_its_field(
    jobs: FrontJobs, engine: Engine
) -> None:
    await judged(jobs, engine, "theirs")
    _, key = await member(jobs)
    for grader, param in (
        (JUDGE, f"{AT}.model"),
        ({**LABEL, "model": "judge"}, f"{AT}.model"),
        (MULTI, f"{AT}.graders.judge.model"),
        ({**JUDGE, "model": "a\nb"}, f"{AT}.model"),
    ):
        with pytest.raises(openai.BadRequestError) as refused:
            await create(jobs, key, grader)
        assert refused.value.param == param


async def test_a_judge_stays_while_a_job_needs_it(jobs: FrontJobs, engine: Engine) -> None:
    project, key = await judged(jobs, engine)
    await create(jobs, key)
    async with jobs.front.openai(await jobs.key(project, "project_owner")) as client:
        with pytest.raises(openai.ConflictError, match=r"in use by 1 running job"):
            await client.models.delete("judge")


async def test_an_attempt_is_graded_by_its_own_grader(jobs: FrontJobs, engine: Engine) -> None:
    project, key = await judged(jobs, engine)
    run = await begun(jobs, key, MULTI)
    assert await grade(run) == runner_pb2.GradeResponse()
    assert (project, "judge") in jobs.front.board.wanted, "kept ready"
    assert engine.requests == []
    response = await grade(run, "Windlass.", "Nobody.")
    assert {index: each.reward for index, each in response.grades.items()} == {0: 0.75, 1: 0.25}
    asked = {request["messages"][-1]["content"] for request in engine.requests}
    assert asked == {"Judge Windlass.", "Judge Nobody."}
    again = await grade(run, "Nobody.")
    assert again.grades[0].reward == 0.25
    assert len(engine.requests) == 2, "a repeat asks nobody"
    assert (await grade(run, "Nobody.", batch="2")).grades[0].reward == 0.25
    assert len(engine.requests) == 3
    counted = await used(jobs.front, 3)
    assert (counted["num_model_requests"], counted["input_tokens"]) == (3, 60)


async def test_scripts_grade_beside_judges(jobs: FrontJobs, engine: Engine) -> None:
    needed_sandbox()
    source = "def grade(sample, item): return len(sample['output_text']) / len(item['answer'])\n"
    # As long as a source may be, about.
    code = {**PYTHON, "source": source + "# more\n" * 30_000}
    graders = {"code": code, "judge": JUDGE}
    _, key = await judged(jobs, engine)
    run = await begun(jobs, key, {**MULTI, "graders": graders, "calculate_output": "code + judge"})
    response = await grade(run, "Windlass.", "")
    assert {index: each.reward for index, each in response.grades.items()} == {0: 1.5, 1: 0.5}


async def test_scripts_beside_judges_want_a_sandbox(
    jobs: FrontJobs, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    _, key = await judged(jobs, engine)
    run = await begun(
        jobs,
        key,
        {**MULTI, "graders": {"code": PYTHON, "judge": JUDGE}, "calculate_output": "code + judge"},
    )
    response = await grade(run, "Windlass.")
    assert not response.grades
    assert "bubblewrap (bwrap) is not installed" in response.refused


async def test_what_keeps_a_judge_from_answering_is_told(jobs: FrontJobs, engine: Engine) -> None:
    async def broken(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return web.json_response({"error": {"message": "out of memory"}}, status=500)

    async def too_long(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return web.json_response({"error": {"message": "too many tokens"}}, status=400)

    project, key = await judged(jobs, engine)
    run = await begun(jobs, key)
    engine.handler = says("splendid")
    (graded,) = (await grade(run, "a")).grades.values()
    assert (graded.reward, graded.fault) == (0, "judge did not answer with a number: 'splendid'")
    engine.handler = too_long
    (graded,) = (await grade(run, "b")).grades.values()
    assert (graded.reward, graded.fault) == (0, "too many tokens")
    engine.handler = broken
    assert "The engine failed to answer (request " in (await grade(run, "c")).pending

    async def pending(words: str) -> bool:
        # The routes come by a stream.
        return words in (await grade(run, "d")).pending

    jobs.front.board.pin("judge", project_id=project)
    await until(lambda: pending("'judge' is still loading"))
    jobs.front.board.on_want = lambda project_id, model: jobs.front.board.pin(
        model, project_id=project_id, error="no GPU is free"
    )
    await until(lambda: pending("no GPU is free"))
    jobs.front.board.unpin("judge", project)
    jobs.front.board.pin("judge", engine.address, project_id="another")

    async def refused() -> bool:
        return "does not exist or you do not have access" in (await grade(run, "e")).refused

    await until(refused)


async def test_an_attempt_reaches_no_other_tenants_judge(jobs: FrontJobs, engine: Engine) -> None:
    """Two projects with a model of one name: each job asks the model of its own."""
    async with running_engine() as theirs:
        theirs.handler = says("1")
        project, key = await judged(jobs, engine, "ours")
        other_project, strange = await judged(jobs, theirs, "theirs")
        ours, other = await begun(jobs, key), await begun(jobs, strange)
        assert (await grade(ours, "x")).grades[0].reward == 0.5
        assert (await grade(other, "x")).grades[0].reward == 1
        assert (len(engine.requests), len(theirs.requests)) == (1, 1)
        await used(jobs.front, 2)
        async with jobs.front.app.database.autocommit() as connection:
            rows = await connection.execute(
                sa.text("SELECT project_id, model, kind, input_tokens FROM usage_records")
            )
            counted = {tuple(row) for row in rows}
        chat = usage_pb2.USAGE_KIND_CHAT
        assert counted == {(one, "judge", chat, 20) for one in (project, other_project)}
    # A job is graded for the agent that holds it, under the attempt that it has.
    west = await jobs.plane.agent("west")
    stranger = ScriptedRun(west, ours.job_id, ours.attempt)
    assert await reason(grade(stranger, "x")) == "attempt_superseded"
    await west.close()
    assert await reason(grade(ScriptedRun(jobs.agent, ours.job_id, 2), "x")) == "attempt_superseded"


async def test_what_may_be_asked_is_bounded(jobs: FrontJobs, engine: Engine) -> None:
    _, key = await judged(jobs, engine)
    plain = await begun(jobs, key, CHECK)
    assert await reason(grade(plain, "x")) == "no_model_grader"
    run = await begun(jobs, key)
    assert await reason(grade(run, *map(str, range(33)))) == "invalid_value"
    assert await reason(grade(run, "x", batch="x" * 65)) == "invalid_value"
    bad = runner_pb2.GradeRequest(answers=[runner_pb2.Answer(sample="x", item=b"[]")])
    assert await reason(run.call("Grade", pb.RunGradeRequest(batch=bad))) == "invalid_value"
    held, let_go = asyncio.Event(), asyncio.Event()

    async def slow(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if len(engine.requests) == 8:
            held.set()
        await let_go.wait()
        return await says("1")(request, body)

    engine.handler = slow
    calls = [asyncio.create_task(grade(run, str(number))) for number in range(8)]
    await asyncio.wait_for(held.wait(), PATIENCE)
    assert await reason(grade(run, "one too many")) == "rate_limit_exceeded"
    let_go.set()
    assert [(await call).grades[0].reward for call in calls] == [1] * 8


async def test_who_may_ask_no_model_may_have_none_ask_for_them(
    jobs: FrontJobs, engine: Engine
) -> None:
    """No role has one permission without the other, so the service is asked directly."""
    project, key = await judged(jobs, engine)
    async with jobs.front.http(key) as http:
        organization = (await http.get("/v1/me")).json()["principal"]["organization_id"]
    tenant = Tenant(jobs.plane, organization, project)
    file = await tenant.put_file((json.dumps(PROMPT) + "\n").encode() * 4)
    grader = json.dumps(JUDGE).encode()
    call = tenant.create(method="reinforcement", grader=grader, training_file=file.id)
    with pytest.raises(grpc.aio.AioRpcError, match=r"inference\.invoke"):
        await call
