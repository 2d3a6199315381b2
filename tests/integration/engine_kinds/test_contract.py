"""What every kind of engine does behind the port, so that the rest need not know which it is."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError, NotFoundError
from tests.integration.engine_kinds.conftest import ARGUMENTS, SLEEPERS, Kept
from tests.support.agents.engine_machine import say
from tests.support.processes.engine import RunningEngine
from tests.support.waiting import stays, until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.confinement import confinement
from windlass.inference_api.routes import ABORT

# vLLM may wait for its turn, and then starts for minutes on a machine that is busy.
pytestmark = [
    pytest.mark.torch,
    pytest.mark.vllm,
    pytest.mark.timeout(1800),
    pytest.mark.asyncio(loop_scope="module"),
]
# Kinds that say how much of their cache is in use.
CACHES = ("sglang", "vllm")
MESSAGES: Any = [{"role": "user", "content": "the quick brown fox"}]


def running(status: pb.WorkloadStatus) -> RunningEngine:
    return RunningEngine(Path(), "toy", status.endpoint, 0, 0.0)


def client(status: pb.WorkloadStatus) -> AsyncOpenAI:
    return running(status).client()


async def test_it_answers_as_soon_as_it_is_ready_and_says_what_it_can(kept: Kept) -> None:
    status = await kept.loaded("mv-a")
    assert status.endpoint.startswith("unix:///")
    assert status.capabilities.adapters
    assert status.capabilities.context_length == ARGUMENTS[kept.kind].context_length
    # Else gateways would send it every request, and share nothing fairly.
    assert status.capabilities.max_concurrency > 0
    # One of ours was answered before; llama.cpp counts anew with each set of adapters.
    before = (await kept.host.driver.loads())["eng-1"]
    assert before.generated_tokens > 0 or kept.kind == "llamacpp"
    async with client(status) as engine:
        answer = await engine.chat.completions.create(
            model="toy", messages=MESSAGES, max_tokens=5, temperature=0
        )
    assert answer.model == "toy"
    assert answer.usage
    assert answer.usage.completion_tokens == 5


async def test_adapters_come_and_go_while_it_runs(kept: Kept) -> None:
    status = await kept.loaded("mv-a")
    base, first = await say(status, "toy"), await say(status, "ft:mv-a")
    status = await kept.loaded("mv-a", "mv-b")
    second = await say(status, "ft:mv-b")
    assert len({base, first, second}) == 3
    assert [await say(status, name) for name in ("toy", "ft:mv-a")] == [base, first]
    status = await kept.loaded("mv-a")
    assert [one.id for one in status.adapters] == ["ft:mv-a"]
    async with client(status) as engine:
        listed = {model.id async for model in engine.models.list()}
    assert listed == {"toy", "ft:mv-a"}


async def test_it_says_what_it_has_done(kept: Kept) -> None:
    status = await kept.loaded("mv-a")
    before = (await kept.host.driver.loads())["eng-1"]
    async with client(status) as engine:
        answer = await engine.chat.completions.create(
            model="toy", messages=MESSAGES, max_tokens=7, temperature=0,
            extra_body={"ignore_eos": True},
        )  # fmt: skip
    assert answer.usage
    read = answer.usage.prompt_tokens

    async def counted() -> bool:
        now = (await kept.host.driver.loads())["eng-1"]
        return (
            now.prompt_tokens - before.prompt_tokens,
            now.generated_tokens - before.generated_tokens,
            now.running,
        ) == (read, 7, 0)

    await until(counted)
    now = (await kept.host.driver.loads())["eng-1"]
    if kept.kind == "vllm":
        assert now.finished_requests == (before.finished_requests or 0) + 1
    else:
        assert now.finished_requests is None, "it does not say"


async def test_its_status_says_the_use_of_its_cache_where_the_engine_does(kept: Kept) -> None:
    status = await kept.loaded("mv-a")

    async def told() -> pb.WorkloadStatus | None:
        (now,) = kept.host.driver.statuses()
        return now if now.load.HasField("cache_percent") == (kept.kind in CACHES) else None

    now: pb.WorkloadStatus = await until(told)
    assert now.endpoint == status.endpoint
    assert 0 <= now.load.cache_percent <= 100
    assert now.load.cache_percent % 5 == 0


async def test_a_stream_says_its_usage_in_every_chunk(kept: Kept) -> None:
    status = await kept.loaded("mv-a")
    options = {"include_usage": True, "continuous_usage_stats": True}
    async with client(status) as engine:
        stream: Any = await engine.chat.completions.create(
            model="toy",
            messages=MESSAGES,
            max_tokens=24,
            temperature=0,
            stream=True,
            extra_body={"stream_options": options, "ignore_eos": True},
        )
        counted = [chunk.usage.completion_tokens async for chunk in stream if chunk.usage]
    assert counted[-1] == 24
    assert counted == sorted(counted)
    # Where tokens are guessed, four may come at once.
    assert len(set(counted)) >= 4, "a stream that is cut would be counted late"


async def test_a_client_that_leaves_ends_the_work(kept: Kept) -> None:
    status = await kept.loaded("mv-a")
    async with client(status) as engine, asyncio.timeout(60):
        for _ in range(3):
            stream = await engine.completions.create(
                model="toy",
                prompt="the quick",
                max_tokens=360,
                temperature=0,
                stream=True,
                extra_body={"ignore_eos": True},
            )
            await anext(aiter(stream))
            await stream.close()
        # One place for all: the answer has to wait for whatever still runs.
        await say(status, "toy")


async def test_a_request_that_is_aborted_is_answered_with_what_was_counted(kept: Kept) -> None:
    status = await kept.loaded("mv-a")
    if ABORT not in status.capabilities.routes:
        assert kept.kind == "llamacpp"
        return
    before = (await kept.host.driver.loads())["eng-1"]

    async def counted() -> tuple[int, int]:
        now = (await kept.host.driver.loads())["eng-1"]
        read = now.prompt_tokens - before.prompt_tokens
        return read, now.generated_tokens - before.generated_tokens

    async def is_under_way() -> bool:
        now = (await kept.host.driver.loads())["eng-1"]
        # Such as SGLang count when a request ends.
        return now.running == 1 and (kept.kind == "sglang" or (await counted())[1] > 0)

    async with client(status) as engine:
        asking = asyncio.create_task(
            engine.chat.completions.create(
                model="toy",
                messages=MESSAGES,
                max_tokens=360,
                extra_body={"ignore_eos": True},
                extra_headers={"x-request-id": "req_1.mine"},
            )
        )
        await until(is_under_way, every=0.01)
        aborted = {"request_ids": ["chatcmpl-req_1", "chatcmpl-req_1.mine"]}
        with running(status).http() as http:
            assert (await asyncio.to_thread(http.post, ABORT, json=aborted)).is_success
        answer = await asking
        assert answer.usage
        assert answer.usage.completion_tokens < 360
        usage = (answer.usage.prompt_tokens, answer.usage.completion_tokens)
        assert await until(counted, holds=lambda found: found == usage)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"temperature": 7.5}, "temperature"),
        ({"max_tokens": 10_000}, "384"),
        ({"messages": "no list"}, "messages"),
    ],
)
async def test_a_wrong_request_is_refused_in_openai_s_shape(
    kept: Kept, wrong: dict[str, object], named: str
) -> None:
    status = await kept.loaded("mv-a")
    async with client(status) as engine:
        with pytest.raises(BadRequestError) as refused:
            await engine.post(
                "/chat/completions",
                body={"model": "toy", "messages": MESSAGES, "max_tokens": 2} | wrong,
                cast_to=object,
            )
    assert named in json.dumps(refused.value.body)


async def test_it_writes_nowhere_and_reaches_nobody(kept: Kept) -> None:
    await kept.loaded("mv-a")
    if not confinement("preferred").confines:
        return
    for process in kept.host.processes():
        assert process.uids().real != 0
        namespaces = {
            name: Path(f"/proc/{process.pid}/ns/{name}").readlink() for name in ("net", "mnt")
        }
        own = {name: Path(f"/proc/self/ns/{name}").readlink() for name in namespaces}
        assert all(namespaces[name] != own[name] for name in namespaces)
        assert "DATABASE_URL" not in process.environ()


async def test_it_outlives_its_agent(kept: Kept) -> None:
    before = await say(await kept.loaded("mv-a"), "ft:mv-a")
    pids = [process.pid for process in kept.host.processes()]
    assert pids
    await kept.loaded("mv-a", "mv-b")
    await kept.take_over()
    # Before anybody says what is wanted, which may be minutes where the control plane is away.
    await until(lambda: kept.versions() == {"mv-a", "mv-b"})
    await stays(lambda: kept.versions() == {"mv-a", "mv-b"})
    status = await kept.loaded("mv-a")
    assert [process.pid for process in kept.host.processes()] == pids
    assert await say(status, "ft:mv-a") == before


async def test_it_sleeps_until_it_is_needed_and_its_next_agent_finds_it_so(kept: Kept) -> None:
    if kept.kind not in SLEEPERS:
        assert not kept.host.kinds[kept.kind].sleeps(8)
        return
    status = await kept.loaded("mv-a")
    assert status.capabilities.sleep
    before = await say(status, "ft:mv-a")
    pids = [process.pid for process in kept.host.processes()]
    await kept.host.driver.apply(kept.workload("mv-a", asleep=True))
    await until(lambda: (now := kept.host.status()) is not None and not now.endpoint)
    await kept.asleep()
    # Sent before its sender had heard.
    if kept.kind == "vllm":
        await say(status, "toy")
    else:
        with pytest.raises(NotFoundError, match="The engine sleeps"):
            await say(status, "toy")
    await kept.asleep()
    await kept.take_over()
    await kept.asleep()
    status = await kept.loaded("mv-a")
    assert await say(status, "ft:mv-a") == before
    assert [process.pid for process in kept.host.processes()] == pids


async def test_it_comes_back_with_its_adapters_after_its_own_death(kept: Kept) -> None:
    before = await say(await kept.loaded("mv-a"), "ft:mv-a")
    for process in kept.host.processes():
        process.kill()
    await until(lambda: (status := kept.host.status()) is not None and not status.endpoint)
    status = await kept.host.reaches(pb.PHASE_RUNNING, generation=kept.generation, loaded=1)
    assert await say(status, "ft:mv-a") == before


async def test_it_ends_once_its_open_requests_have(kept: Kept) -> None:
    status = await kept.loaded("mv-a")
    async with client(status) as engine:
        stream: Any = await engine.completions.create(
            model="ft:mv-a",
            prompt="the quick",
            max_tokens=300,
            temperature=0,
            stream=True,
            extra_body={"ignore_eos": True, "stream_options": {"include_usage": True}},
        )
        chunks = aiter(stream)
        await anext(chunks)
        kept.generation += 1
        gone = pb.Workload(id="eng-1", generation=kept.generation, desired=pb.DESIRED_STATE_DELETED)
        await kept.host.driver.apply(gone)
        stopping = kept.host.status()
        assert stopping
        assert (stopping.phase, stopping.endpoint) == (pb.PHASE_STOPPING, "")
        *_, last = [chunk async for chunk in chunks]
    assert last.usage.completion_tokens == 300
    await until(lambda: kept.host.status() is None)
    assert not kept.host.processes()
