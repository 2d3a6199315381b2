"""Events followed live over HTTP: from anywhere, by many, to the end, and by nobody else."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from prometheus_client import REGISTRY
from tests.support.services.front_jobs import FrontJobs, running_front_jobs
from tests.support.services.jobs_plane import JobsPlane, ScriptedAgent, Tenant
from tests.support.waiting import PATIENCE, Watch, until

from windlass.jobs.domain.job import JobEvent
from windlass.jobs.storage import event_feeds
from windlass.jobs.storage.event_feeds import EventFeeds
from windlass.jobs.storage.store import JobStore

FOLLOWERS = 20


@pytest.fixture
async def stage(database_url: str, tmp_path: Path) -> AsyncIterator[FrontJobs]:
    async with running_front_jobs(database_url, tmp_path / "data") as made:
        yield made


@pytest.fixture
async def key(stage: FrontJobs) -> str:
    return await stage.key(await stage.project("main"))


def path(job: str) -> str:
    return f"/v1/fine_tuning/jobs/{job}/events"


async def read(response: httpx.Response) -> AsyncIterator[tuple[str, Any]]:
    """Ids and documents of a stream, as an EventSource takes them."""
    event_id = ""
    async for line in response.aiter_lines():
        field, _, value = line.partition(": ")
        if field == "id":
            event_id = value
        elif field == "data":
            yield event_id, value if value == "[DONE]" else json.loads(value)


async def whole(stage: FrontJobs, key: str, job: str, **headers: str) -> list[Any]:
    async with (
        stage.http(key, **headers) as http,
        http.stream("GET", path(job), params={"stream": "true"}) as response,
    ):
        assert response.status_code == 200
        return [event async for event in read(response)]


async def listed(stage: FrontJobs, key: str, job: str) -> list[str]:
    async with stage.http(key) as http:
        page = (await http.get(path(job), params={"limit": 100})).json()
    return [event["id"] for event in reversed(page["data"])]


async def train(stage: FrontJobs, job: str, steps: int = 3) -> None:
    await stage.agent.wants(job)
    run = stage.agent.run(job)
    for step in range(1, steps + 1):
        await run.step(step)
    await run.upload("FINAL", steps)
    await run.finish()


async def test_a_stream_tells_all_and_ends(stage: FrontJobs, key: str) -> None:
    job = await stage.create(key)
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        following = group.create_task(whole(stage, key, job))
        await train(stage, job)
    *events, (_, done) = following.result()
    assert done == "[DONE]"
    assert [event_id for event_id, _ in events] == await listed(stage, key, job)
    assert [event["id"] for _, event in events] == [event_id for event_id, _ in events]
    assert [event["data"]["step"] for _, event in events if event["type"] == "metrics"] == [1, 2, 3]


async def test_a_reader_comes_again_where_it_left(stage: FrontJobs, key: str) -> None:
    job = await stage.create(key)
    await train(stage, job)
    ids = await until_ended(stage, key, job)
    # What the browser saw last counts, not what the page once asked for.
    async with stage.http(key, **{"Last-Event-ID": ids[-3]}) as http:
        answer = await http.get(path(job), params={"stream": "true", "after": ids[0]})
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert [line[4:] for line in answer.text.splitlines() if line.startswith("id: ")] == ids[-2:]
    async with stage.http(key) as http:
        answer = await http.get(path(job), params={"stream": "true", "after": ids[-2]})
    assert [line[4:] for line in answer.text.splitlines() if line.startswith("id: ")] == ids[-1:]
    async with stage.http(key, **{"Last-Event-ID": ids[-1]}) as http:
        answer = await http.get(path(job), params={"stream": "true"})
    assert (answer.status_code, answer.content) == (204, b"")


async def until_ended(stage: FrontJobs, key: str, job: str) -> list[str]:
    await whole(stage, key, job)
    return await listed(stage, key, job)


async def test_a_stream_is_refused_before_it_begins(stage: FrontJobs, key: str) -> None:
    job = await stage.create(key)
    mine = (await listed(stage, key, job))[0]
    other = await stage.create(key)
    strangers = (await stage.strange_key(), await stage.key(await stage.project("side")))
    for stranger in strangers:
        async with stage.http(stranger) as http:
            for params in ({}, {"after": mine}):
                answer = await http.get(path(job), params={"stream": "true", **params})
                assert (answer.status_code, answer.json()["error"]["param"]) == (404, "job_id")
        async with stage.http(stranger, **{"Last-Event-ID": mine}) as http:
            assert (await http.get(path(job), params={"stream": "true"})).status_code == 404
    async with stage.http(key) as http:
        for cursor in (mine, "ftevent-x"):
            answer = await http.get(path(other), params={"stream": "true", "after": cursor})
            assert (answer.status_code, answer.json()["error"]["param"]) == (404, "after")


async def new_key(stage: FrontJobs, project: str) -> tuple[str, str]:
    """A key of a project, and its id."""
    async with stage.front.http() as http:
        body = {"name": "reader", "role": "project_member", "project_id": project}
        made = (await http.post("/v1/api_keys", json=body)).json()
        return made["value"], made["id"]


async def test_a_stream_ends_with_its_key(stage: FrontJobs) -> None:
    project = await stage.project("main")
    job = await stage.create(await stage.key(project))
    key, key_id = await new_key(stage, project)
    async with asyncio.timeout(PATIENCE), stage.front.http() as owner, stage.http(key) as http:
        params = {"stream": "true"}
        async with http.stream("GET", path(job), params=params) as response:
            events = read(response)
            _, first = await anext(events)
            assert first["object"] == "fine_tuning.job.event"
            assert (await owner.delete(f"/v1/api_keys/{key_id}")).is_success
            revoked = Watch()
            *_, (_, last) = [event async for event in events]
            assert revoked.seconds() < 3
    assert last["error"]["code"] == "invalid_api_key"
    assert "[DONE]" not in last


async def test_a_log_that_is_followed_ends_with_its_key(stage: FrontJobs) -> None:
    project = await stage.project("main")
    job = await stage.create(await stage.key(project))
    await stage.agent.wants(job)
    await stage.agent.run(job).log(0, b"first\n")
    key, key_id = await new_key(stage, project)
    async with asyncio.timeout(PATIENCE), stage.front.http() as owner, stage.http(key) as http:
        url = f"/v1/fine_tuning/jobs/{job}/logs"
        async with http.stream("GET", url, params={"follow": "true"}) as response:
            pieces = response.aiter_bytes()
            assert await anext(pieces) == b"first\n"
            assert (await owner.delete(f"/v1/api_keys/{key_id}")).is_success
            with pytest.raises(httpx.RemoteProtocolError):
                await anext(pieces)


@contextlib.contextmanager
def reads_of_events() -> Iterator[list[str]]:
    """The statements that look for new events."""
    seen: list[str] = []

    def note(*arguments: Any) -> None:
        if "jobs_events.revision >" in arguments[2]:
            seen.append(arguments[2])

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)


async def test_many_readers_cost_one(stage: FrontJobs, key: str) -> None:
    job = await stage.create(key)
    await stage.agent.wants(job)
    run = stage.agent.run(job)
    heard = [0] * FOLLOWERS

    async def follow(number: int) -> None:
        async with stage.http(key) as http:
            params = {"stream": "true"}
            async with http.stream("GET", path(job), params=params) as response:
                async for _, event in read(response):
                    if event == "[DONE]":
                        return
                    if event["type"] == "metrics":
                        heard[number] = event["data"]["step"]

    async def all_heard(step: int) -> None:
        async def said() -> bool:
            return set(heard) == {step}

        await until(said)

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for number in range(FOLLOWERS):
            group.create_task(follow(number))
        await run.step(1)
        await all_heard(1)
        with reads_of_events() as seen:
            for step in range(2, 7):
                await run.step(step)
                await all_heard(step)
        await run.upload("FINAL", 6)
        await run.finish()
    assert len(seen) == 5, "one for each step, whoever follows"


async def test_readers_that_leave_are_forgotten(stage: FrontJobs, key: str) -> None:
    def streams() -> float:
        labels = {"service": "windlass.api.jobs.v1.JobsService", "method": "WatchEvents"}
        return REGISTRY.get_sample_value("windlass_rpc_streams", labels) or 0.0

    async def gone() -> bool:
        return streams() == 0

    job = await stage.create(key)
    await stage.agent.wants(job)
    run = stage.agent.run(job)

    async def look(number: int) -> None:
        async with stage.http(key) as http:
            params = {"stream": "true"}
            async with http.stream("GET", path(job), params=params) as response:
                events = read(response)
                # One leaves while much is sent to it, another while it waits.
                for _ in range(number % 4 + 1):
                    await anext(events)
                assert streams() >= 1

    async with asyncio.TaskGroup() as group:
        for number in range(FOLLOWERS):
            group.create_task(look(number))
        for step in range(1, 31):
            await run.step(step, total=30)
    await until(gone)


async def test_who_falls_behind_misses_nothing(
    plane: JobsPlane, tenant: Tenant, agent: ScriptedAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_feeds, "WINDOW", 3)
    job = await tenant.create()
    await agent.wants(job.id)
    followed = EventFeeds(plane.app.database, plane.app.wake)
    record = await JobStore(plane.app.database, plane.app.wake).get(tenant.project, job.id)
    slow, quick = followed.follow(record, 0), followed.follow(record, 0)
    seen: list[JobEvent] = [await anext(slow)]

    async def read_all() -> list[JobEvent]:
        return [event async for event in quick]

    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        prompt = group.create_task(read_all())
        run = agent.run(job.id)
        for step in range(1, 11):
            await run.step(step)
        await run.upload("FINAL", 10)
        await run.finish()
    seen += [event async for event in slow]
    assert seen == prompt.result()
    assert [event.revision for event in seen] == list(range(1, len(seen) + 1))
    assert seen[-1].message == "The job has successfully completed"
    assert not followed.followed


async def test_the_last_reader_to_leave_ends_the_reading(plane: JobsPlane, tenant: Tenant) -> None:
    job = await tenant.create()
    followed = EventFeeds(plane.app.database, plane.app.wake)
    record = await JobStore(plane.app.database, plane.app.wake).get(tenant.project, job.id)
    first, second = followed.follow(record, 0), followed.follow(record, 0)
    await anext(first)
    await anext(second)
    await first.aclose()
    assert followed.followed == {job.id}
    await second.aclose()
    assert not followed.followed
