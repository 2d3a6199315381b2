"""The keeper of SGLang, before its wheel without a model: names, clients that leave, refusals."""

import asyncio
import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest
import pytest_asyncio
from tests.support.environments.postgres import reachable_folder
from tests.support.environments.sglang.env import sglang_python
from tests.support.factories.toy_model import make_adapter, make_model
from tests.support.waiting import until

from windlass.engine_arguments import EngineArguments
from windlass.inference_api.errors import ApiError
from windlass_agent.engines.kept.engine import KeptFailure
from windlass_agent.engines.kept.neighbour import script
from windlass_agent.engines.port import EngineSpec
from windlass_agent.engines.sglang import answers
from windlass_agent.engines.sglang.keeper import SglangKeeper
from windlass_agent.engines.sglang.kind import SglangEngine
from windlass_agent.engines.sglang.server import SglangCommand, launch

pytestmark = [
    pytest.mark.torch,
    pytest.mark.timeout(600),
    pytest.mark.asyncio(loop_scope="module"),
]
ROUTE = "/v1/completions"
ASKED: dict[str, Any] = {"prompt": "the quick brown fox", "max_tokens": 6}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    make_adapter(make_model(folder / "base"), folder / "a", seed=1)
    return folder / "base"


def keeper_of(base: Path, folder: Path, *, is_neighbour: bool = False) -> SglangKeeper:
    """A keeper that has not started, of a server with one place and one more to wait in."""
    engine = SglangEngine(sglang_python(), flags=("--max-queued-requests=1",))
    arguments = EngineArguments(context_length=4096, max_concurrency=1)
    spec = EngineSpec(
        model_dir=base, served_name="m", endpoint="unix:///unused", arguments=arguments
    )
    command = SglangCommand(
        words=launch(engine.python, engine.flags_of(spec)), folder=folder, is_neighbour=is_neighbour
    )
    return SglangKeeper(command, model="m", max_adapters=2)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def keeper(base: Path) -> AsyncIterator[SglangKeeper]:
    with reachable_folder() as folder:
        made = await asyncio.to_thread(keeper_of, base, folder)
        await made.start()
        try:
            yield made
        finally:
            await made.close()


async def said(keeper: SglangKeeper, model: str) -> str:
    async with keeper.posted(ROUTE, ASKED | keeper.fields(model)) as response:
        found: dict[str, Any] = await response.json()
        return str(found["choices"][0]["text"])


async def counts(keeper: SglangKeeper) -> dict[str, int]:
    """The values of the server's page, by the last part of their names."""
    lines = (await keeper.metrics()).decode().splitlines()
    return {line.partition("{")[0].removeprefix("sglang:"): int(float(line.split()[-1]))
            for line in lines}  # fmt: skip


def running(keeper: SglangKeeper, number: int) -> Callable[[], Any]:
    async def reached() -> bool:
        return (await counts(keeper))["num_running_reqs"] == number

    return reached


async def test_one_in_another_container_answers_alike(keeper: SglangKeeper, base: Path) -> None:
    """The container of a pod is a plain sh of this machine, which knows nothing but its folder."""
    with reachable_folder() as folder:
        shell = subprocess.Popen(script(folder), start_new_session=True)
        other = await asyncio.to_thread(keeper_of, base, folder, is_neighbour=True)
        try:
            await other.start()
            assert await said(other, "m") == await said(keeper, "m")
            await other.load("a", base.parent / "a")
            assert await said(other, "a") != await said(other, "m")
            for started in folder.glob("*.pid"):
                psutil.Process(int(started.read_text())).kill()
            async with asyncio.timeout(60):
                await other.failed()
        finally:
            await other.close()
            shell.terminate()
            shell.wait(10)


async def test_a_client_that_leaves_ends_the_work_at_once(keeper: SglangKeeper) -> None:
    body = ASKED | keeper.fields("m") | {"max_tokens": 4000, "stream": True}
    before = (await counts(keeper))["generation_tokens_total"]
    async with keeper.posted(ROUTE, body) as response:
        await response.content.readline()
    await until(running(keeper, 0))
    # By itself the stand-in notices only after a minute, when it has said all.
    assert (await counts(keeper))["generation_tokens_total"] - before < 4000
    assert keeper.open == 0


async def test_requests_of_one_answer_are_aborted_by_their_public_id(keeper: SglangKeeper) -> None:
    long = ASKED | keeper.fields("m") | {"max_tokens": 4000}

    async def ask(body: dict[str, Any]) -> dict[str, Any]:
        async with keeper.posted(ROUTE, body, "cmpl-req_1-0") as response:
            answer: dict[str, Any] = await response.json()
            return answer

    asking = asyncio.create_task(ask(long))
    await until(running(keeper, 1))
    assert not await keeper.abort(["cmpl-req_2-0"])
    assert await keeper.abort(["cmpl-req_2-0", "cmpl-req_1-0"])
    answer = await asking
    assert 0 < answer["usage"]["completion_tokens"] < 4000
    assert not await keeper.abort(["cmpl-req_1-0"])
    # SGLang tells nobody the names of its parts.
    asking = asyncio.create_task(ask(long | {"n": 2}))
    await until(running(keeper, 1))
    assert not await keeper.abort(["cmpl-req_1-0"])
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await until(running(keeper, 0))


async def test_a_cancelled_request_ends_while_it_waits_too(keeper: SglangKeeper) -> None:
    long = ASKED | keeper.fields("m") | {"max_tokens": 4000}

    async def ask() -> None:
        async with keeper.posted(ROUTE, long) as response:
            await response.read()

    first, second = asyncio.create_task(ask()), asyncio.create_task(ask())
    await until(lambda: _waits(keeper, 1))
    # A third finds the queue full, which a stream says in its first event.
    body = ASKED | keeper.fields("m") | {"stream": True}
    async with keeper.posted(ROUTE, body) as response:
        assert response.status == 200
        with pytest.raises(ApiError) as refused:
            await anext(answers.chunks(response.content, "m"))
    assert (refused.value.status, refused.value.code) == (503, "engine_overloaded")
    for task in (second, first):
        task.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    await until(lambda: _waits(keeper, 0))
    await until(running(keeper, 0))


async def _waits(keeper: SglangKeeper, number: int) -> bool:
    return (await counts(keeper))["num_queue_reqs"] == number


async def test_a_name_that_comes_back_is_another_adapter_there(
    keeper: SglangKeeper, base: Path
) -> None:
    plain = await said(keeper, "m")
    await keeper.load("ft:a:x", base.parent / "a")
    first = keeper.fields("ft:a:x")
    tuned = await said(keeper, "ft:a:x")
    assert tuned != plain
    body = ASKED | first | {"max_tokens": 300, "stream": True}
    async with keeper.posted(ROUTE, body) as response:
        stream = answers.chunks(response.content, "ft:a:x")
        await anext(stream)
        assert keeper.unload("ft:a:x")
        with pytest.raises(ApiError) as unknown:
            keeper.fields("ft:a:x")
        assert unknown.value.status == 404
        *_, end = [chunk async for chunk in stream]
        assert end == b"data: [DONE]\n\n", "an open request was cut"
    assert not keeper.unload("ft:a:x")
    await keeper.load("ft:a:x", base.parent / "a")
    assert keeper.fields("ft:a:x") != first
    assert await said(keeper, "ft:a:x") == tuned
    assert keeper.unload("ft:a:x")


async def test_an_adapter_scaled_by_the_root_of_its_rank_is_told_so(
    keeper: SglangKeeper, base: Path, tmp_path: Path
) -> None:
    shutil.copytree(base.parent / "a", tmp_path / "rooted")
    file = tmp_path / "rooted" / "adapter_config.json"
    config = json.loads(file.read_bytes())
    file.write_text(json.dumps(config | {"use_rslora": True}))
    scaled = tmp_path / "scaled"
    shutil.copytree(base.parent / "a", scaled)
    alpha = config["lora_alpha"] * config["r"] ** 0.5
    (scaled / "adapter_config.json").write_text(json.dumps(config | {"lora_alpha": alpha}))
    await keeper.load("rooted", tmp_path / "rooted")
    await keeper.load("scaled", scaled)
    assert await said(keeper, "rooted") == await said(keeper, "scaled")
    for name in ("rooted", "scaled"):
        assert keeper.unload(name)


async def test_what_it_cannot_load_is_refused_and_the_rest_answers_on(
    keeper: SglangKeeper, base: Path, tmp_path: Path
) -> None:
    make_adapter(base, tmp_path / "dora", seed=3, use_dora=True)
    with pytest.raises(KeptFailure, match="DoRA"):
        await keeper.load("dora", tmp_path / "dora")
    (tmp_path / "none").mkdir()
    with pytest.raises(KeptFailure, match=r"adapter_config\.json"):
        await keeper.load("none", tmp_path / "none")
    assert keeper.adapters == {}
    assert await said(keeper, "m")


async def test_nobody_reaches_the_server_without_its_key(keeper: SglangKeeper) -> None:
    async with keeper.posted(ROUTE, ASKED | keeper.fields("m")) as response:
        assert response.status == 200
        address = response.url.with_path("/abort_request")
    async with aiohttp.ClientSession() as stranger:
        for key in ({}, {"Authorization": "Bearer guess"}):
            answer = await stranger.post(address, json={"rid": "x"}, headers=key)
            assert answer.status == 401


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("exit 2", ""),
        ("kill -9 $$", "SGLang was ended by signal 9"),
        # As a shell in another container tells it.
        ("exit 137", "SGLang was ended by signal 9"),
    ],
)
async def test_a_server_that_cannot_start_is_none(
    tmp_path: Path, program: str, reason: str
) -> None:
    command = SglangCommand(words=("/bin/sh", "-c", program, "sglang"), folder=tmp_path)
    made = SglangKeeper(command, model="m", max_adapters=2)
    with pytest.raises(KeptFailure) as failure:
        await made.start()
    # It has said why itself, unless somebody killed it.
    assert str(failure.value) == reason
    assert not await made.answers()
    await made.close()


async def test_the_death_of_the_server_is_noticed(keeper: SglangKeeper) -> None:
    living = (one for one in psutil.Process().children() if one.status() != psutil.STATUS_ZOMBIE)
    (child,) = [one for one in living if "sglang.launch_server" in one.cmdline()]
    child.kill()
    async with asyncio.timeout(60):
        await keeper.failed()
    assert not await keeper.answers()
    async with asyncio.timeout(10):
        with pytest.raises(aiohttp.ClientError):
            await said(keeper, "m")
