"""The keeper of a real `llama-server`: adapters come while it answers, and it outlives refusals."""

import asyncio
import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio
from tests.support.environments.llama_server import llama_server
from tests.support.environments.postgres import reachable_folder
from tests.support.factories.toy_model import make_adapter, make_draft, make_model
from tests.support.waiting import until

from windlass.inference_api.errors import ApiError
from windlass_agent.engines.kept.neighbour import script
from windlass_agent.engines.llamacpp import conversion
from windlass_agent.engines.llamacpp.bodies import placed
from windlass_agent.engines.llamacpp.conversion import ConversionFailure
from windlass_agent.engines.llamacpp.keeper import Keeper, Turn
from windlass_agent.engines.llamacpp.server import LlamaServer, ServerFailure, ServerSettings
from windlass_agent.gguf import adapter_file, model_file

pytestmark = [
    pytest.mark.torch,
    pytest.mark.timeout(1800),
    pytest.mark.asyncio(loop_scope="module"),
]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    make_adapter(make_model(folder / "base"), folder / "a", seed=1)
    make_adapter(folder / "base", folder / "b", seed=2)
    make_draft(folder / "base", folder / "draft")
    return folder / "base"


@pytest_asyncio.fixture(loop_scope="module")
async def keeper(base: Path) -> AsyncIterator[Keeper]:
    program = await asyncio.to_thread(llama_server)
    with reachable_folder() as folder:
        (model,) = model_file.write(base, folder / "model.gguf", name="toy")
        settings = ServerSettings(
            program=program, model=model, folder=folder, context=256, concurrency=1, cpus=1
        )
        made = Keeper(settings, model="toy", base=base, max_adapters=4)
        await made.start()
        try:
            yield made
        finally:
            await made.close()


@pytest.fixture
def converts_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adapters are written by this process, where torch is: one of their own costs seconds."""

    async def write(folder: Path, *, base: Path, target: Path) -> None:
        await asyncio.to_thread(adapter_file.write, folder, base, target)

    monkeypatch.setattr(conversion, "write_adapter", write)


async def say(turn: Turn) -> str:
    body = {"prompt": "the quick", "max_tokens": 8, "temperature": 0}
    asked = placed(
        body,
        slot=turn.slot,
        continued=turn.continued,
        adapter=turn.adapter,
        adapters=len(turn.server.adapters),
    )
    async with turn.server.session.post("/v1/completions", json=asked) as response:
        answer: dict[str, Any] = await response.json()
        return str(answer["choices"][0]["text"])


async def answer(keeper: Keeper, model: str) -> str:
    async with keeper.turn(model, "salt") as turn:
        return await say(turn)


@pytest.mark.usefixtures("converts_here")
async def test_an_adapter_comes_while_requests_are_open(keeper: Keeper, base: Path) -> None:
    plain = await answer(keeper, "toy")
    async with keeper.turn("toy", "salt") as old:
        await keeper.load("a", base.parent / "a")
        assert keeper.open == 1
        first = await answer(keeper, "a")
        assert first != plain
        assert await say(old) == plain, "the server of an open request was ended"
        # A third server waits until the first has gone.
        loading = asyncio.create_task(keeper.load("b", base.parent / "b"))
        assert await answer(keeper, "a") == first
        assert not loading.done()
    await loading
    second = await answer(keeper, "b")
    assert len({plain, first, second}) == 3
    # One slot for all: none answers with what another's weights have read.
    said = [await answer(keeper, name) for name in ("a", "toy", "b", "toy", "a")]
    assert said == [first, plain, second, plain, first]
    assert not await old.server.answers()


@pytest.mark.usefixtures("converts_here")
async def test_a_failure_leaves_no_file_and_a_second_wish_no_second_server(
    keeper: Keeper, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise ServerFailure("no memory")

    there = set(keeper.settings.folder.glob("*.gguf"))
    with monkeypatch.context() as patch:
        patch.setattr(LlamaServer, "start", fail)
        with pytest.raises(ServerFailure, match="no memory"):
            await keeper.load("a", base.parent / "a")
    assert set(keeper.settings.folder.glob("*.gguf")) == there
    await asyncio.gather(*(keeper.load("a", base.parent / "a") for _ in range(2)))
    assert len(set(keeper.settings.folder.glob("*.gguf")) - there) == 1


@pytest.mark.usefixtures("converts_here")
async def test_one_that_is_unloaded_is_gone_at_once(keeper: Keeper, base: Path) -> None:
    await keeper.load("a", base.parent / "a")
    async with keeper.turn("a", "salt") as turn:
        assert keeper.unload("a")
        assert await say(turn)
    assert not keeper.unload("a")
    with pytest.raises(ApiError) as unknown:
        await answer(keeper, "a")
    assert unknown.value.status == 404


async def test_what_it_cannot_load_is_refused_and_the_rest_answers_on(
    keeper: Keeper, base: Path, tmp_path: Path
) -> None:
    before = await answer(keeper, "toy")
    make_adapter(base, tmp_path / "wrong", seed=3, use_dora=True)
    with pytest.raises(ConversionFailure, match="DoRA"):
        await keeper.load("wrong", tmp_path / "wrong")
    assert await answer(keeper, "toy") == before
    assert keeper.adapters == {}


async def test_files_that_are_damaged_are_named_without_their_place(
    keeper: Keeper, base: Path, tmp_path: Path
) -> None:
    shutil.copytree(base.parent / "a", tmp_path / "cut")
    (tmp_path / "cut" / "adapter_model.safetensors").write_bytes(b"\0" * 20)
    with pytest.raises(ConversionFailure) as refused:
        await keeper.load("cut", tmp_path / "cut")
    assert str(refused.value) == "The conversion to GGUF ended with code 1."


async def test_the_death_of_the_server_is_noticed(keeper: Keeper) -> None:
    living = (one for one in psutil.Process().children() if one.status() != psutil.STATUS_ZOMBIE)
    (child,) = [one for one in living if "llama-server" in " ".join(one.cmdline())]
    child.kill()
    async with asyncio.timeout(60):
        await keeper.failed()
    assert not await keeper.answers()
    await until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


async def greedy(keeper: Keeper, model: str) -> tuple[str, dict[str, Any]]:
    """The text of an answer, and the server's own counts of it."""
    body = {"prompt": "the quick", "max_tokens": 40, "temperature": 0, "ignore_eos": True}
    async with keeper.turn(model, "salt") as turn:
        adapters = len(turn.server.adapters)
        asked = placed(
            body, slot=turn.slot, continued=False, adapter=turn.adapter, adapters=adapters
        )
        async with turn.server.session.post("/v1/completions", json=asked) as response:
            answer: dict[str, Any] = await response.json()
    assert answer["usage"]["completion_tokens"] == answer["timings"]["predicted_n"] == 40
    return answer["choices"][0]["text"], answer["timings"]


@pytest.mark.usefixtures("converts_here")
async def test_a_draft_guesses_and_changes_no_answer(keeper: Keeper, base: Path) -> None:
    await keeper.load("a", base.parent / "a")
    plain = {model: await greedy(keeper, model) for model in ("toy", "a")}
    assert all("draft_n" not in timings for _, timings in plain.values())
    folder = keeper.settings.folder
    (draft,) = model_file.write(base.parent / "draft", folder / "draft.gguf", name="draft")
    guessing = replace(keeper.settings, draft=draft, draft_tokens=4)
    other = Keeper(guessing, model="toy", base=base, max_adapters=4)
    # Of other sockets and files.
    other._started = 100
    try:
        await other.start()
        await other.load("a", base.parent / "a")
        for model, (text, _) in plain.items():
            said, timings = await greedy(other, model)
            assert said == text
            # What an adapter would say, the draft does not know.
            least = 1 if model == "toy" else 0
            assert least <= timings["draft_n_accepted"] < timings["draft_n"]
    finally:
        await other.close()


async def test_a_draft_of_another_vocabulary_is_said(
    keeper: Keeper, base: Path, tmp_path: Path
) -> None:
    """llama-server by itself would answer without it."""
    config = json.loads((base / "config.json").read_text())
    shutil.copytree(base, tmp_path / "other")
    other = tmp_path / "other" / "tokenizer.json"
    words = json.loads(other.read_text())
    vocab = words["model"]["vocab"]
    first, second = sorted(vocab, key=vocab.__getitem__)[100:102]
    vocab[first], vocab[second] = vocab[second], vocab[first]
    other.write_text(json.dumps(words))
    assert config["vocab_size"] == len(vocab)
    target = keeper.settings.folder / "other.gguf"
    (draft,) = model_file.write(tmp_path / "other", target, name="other")
    with pytest.raises(ServerFailure, match="does not take the draft model"):
        await LlamaServer.start(replace(keeper.settings, draft=draft), 200, ())


@pytest.mark.usefixtures("converts_here")
async def test_a_server_in_another_container_answers_alike(keeper: Keeper, base: Path) -> None:
    """The container of a pod is a plain sh of this machine, which knows nothing but its folder."""
    plain = await answer(keeper, "toy")
    with reachable_folder() as folder:
        shell = subprocess.Popen(script(folder), start_new_session=True)
        apart = replace(keeper.settings, folder=folder, neighbours=folder)
        other = Keeper(apart, model="toy", base=base, max_adapters=4)
        try:
            await other.start()
            assert await answer(other, "toy") == plain
            await other.load("a", base.parent / "a")
            assert await answer(other, "a") != plain
            assert other._server is not None
            kill_servers(folder)
            async with asyncio.timeout(60):
                await other.failed()
            broken = replace(apart, model=folder / "none.gguf")
            with pytest.raises(ServerFailure, match=r"code 1: .*none\.gguf"):
                await LlamaServer.start(broken, 300, ())
        finally:
            await other.close()
            shell.terminate()
            shell.wait(10)


def kill_servers(folder: Path) -> None:
    """Ends the servers of a folder by kill -9."""
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or [""]
        if words[0].endswith("llama-server") and str(folder) in " ".join(words):
            process.kill()
