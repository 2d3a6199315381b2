"""Models that the server gets from a hub by itself.

The hub is a fake (`tests.support.fakes.hub`), since Hugging Face's cannot be reached from here.
"""

import hashlib
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event
from typing import Any

import grpc
import pytest
import sqlalchemy as sa
from tests.support.factories.feather import weights
from tests.support.fakes import hub as hubs
from tests.support.fakes.hub import COMMIT, Hub
from tests.support.processes.pages import run, script
from tests.support.processes.shell import PROGRAM, Shell
from tests.support.processes.windlass import make_single, running
from tests.support.services.platform import Platform, running_platform
from tests.support.waiting import until

from windlass.api.models.v1 import models_pb2 as pb
from windlass.core.config import Settings
from windlass.core.errors import from_rpc
from windlass.models.fetches import worker
from windlass.models.module import FETCHERS
from windlass.models.tables import fetches

TOKEN = "hf_of_a_test"
WEIGHTS = weights(5000)
OPEN = {
    "config.json": json.dumps({"model_type": "llama"}).encode(),
    "model.safetensors": WEIGHTS,
    "tokenizer.json": b"{}",
    "README.md": b"# Small",
    # None of these comes along.
    "pytorch_model.bin": b"pickled",
    "consolidated.safetensors": WEIGHTS,
    "modeling_small.py": b"import os",
    "original/params.json": b"{}",
}
EMBEDDER = {
    "config.json": json.dumps({"model_type": "bert", "architectures": ["BertModel"]}).encode(),
    "model.safetensors": WEIGHTS,
    "tokenizer.json": b"{}",
    "modules.json": json.dumps(
        [
            {"type": "sentence_transformers.models.Transformer", "path": ""},
            {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"},
        ]
    ).encode(),
    "1_Pooling/config.json": json.dumps({"pooling_mode_cls_token": True}).encode(),
    # The same once more, and what no engine reads.
    "onnx/config.json": b"{}",
    "openvino/model.safetensors": WEIGHTS,
}
STRANGE = EMBEDDER | {"1_Pooling/config.json": b'{"pooling_mode_max_tokens": true}'}
BROUGHT = {"config.json", "model.safetensors", "tokenizer.json", "README.md"}
REMOTE = OPEN | {"config.json": json.dumps({"model_type": "x", "auto_map": {"A": "b.A"}}).encode()}
PICKLED = {"config.json": OPEN["config.json"], "pytorch_model.bin": b"pickled"}
ENDED = (pb.FETCH_STATE_SUCCEEDED, pb.FETCH_STATE_FAILED, pb.FETCH_STATE_CANCELLED)


def write(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    found = {"small": OPEN, "gated": OPEN, "remote": REMOTE, "pickled": PICKLED}
    found |= {"embedder": EMBEDDER, "strange": STRANGE}
    folders = {
        ("models", f"acme/{name}"): write(tmp_path / "hub" / name, files)
        for name, files in found.items()
    }
    with hubs.running("127.0.0.1", folders, {"acme/gated": TOKEN}) as made:
        yield made
        for event in made.held.values():
            event.set()


@asynccontextmanager
async def platform_on(url: str, data: Path, hub: Hub) -> AsyncIterator[Platform]:
    settings = Settings()
    settings.hub.endpoint = hub.url
    async with running_platform(url, data, settings=settings) as made:
        yield made


@pytest.fixture
async def platform(database_url: str, tmp_path: Path, hub: Hub) -> AsyncIterator[Platform]:
    async with platform_on(database_url, tmp_path / "data", hub) as made:
        yield made


async def begin(platform: Platform, name: str, **wish: Any) -> pb.Fetch:
    request = pb.CreateFetchRequest(source=f"hf://acme/{name}", **wish)
    return await platform.models.CreateFetch(request, **platform.tenant())


async def looked(platform: Platform, fetch: pb.Fetch, project: str = "proj-a") -> pb.Fetch:
    request = pb.GetFetchRequest(id=fetch.id)
    return await platform.models.GetFetch(request, **platform.tenant(project))


async def over(platform: Platform, fetch: pb.Fetch) -> pb.Fetch:
    found = fetch

    async def ended() -> bool:
        nonlocal found
        found = await looked(platform, fetch)
        return found.state in ENDED

    await until(ended)
    return found


async def keys(platform: Platform) -> set[str]:
    return {info.key.rpartition("/")[2] async for info in platform.app.objects.list("models/")}


async def cleared(platform: Platform) -> bool:
    return not await keys(platform)


async def refused(call: Any) -> tuple[str, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    error = from_rpc(caught.value)
    return error.reason, error.message


async def test_a_repository_becomes_a_model(platform: Platform, hub: Hub) -> None:
    fetch = await over(platform, await begin(platform, "small"))
    assert (fetch.state, fetch.commit) == (pb.FETCH_STATE_SUCCEEDED, COMMIT), fetch
    assert fetch.bytes_done == fetch.bytes_total == sum(len(OPEN[name]) for name in BROUGHT)
    model = await platform.models.GetModel(pb.GetModelRequest(id="small"), **platform.tenant())
    assert (model.kind, model.bytes) == (pb.MODEL_KIND_BASE, fetch.bytes_total)
    assert not model.warnings
    assert await keys(platform) == BROUGHT
    resolved = await platform.models_internal.ResolveModel(
        pb.ResolveModelRequest(project_id="proj-a", id="small")
    )
    digests = {file.path: file.sha256 for file in resolved.manifest.files}
    assert digests == {name: hashlib.sha256(OPEN[name]).digest() for name in BROUGHT}
    assert (await refused(begin(platform, "small")))[0] == "model_exists"
    again = await over(platform, await begin(platform, "small", id="my/small", revision="main"))
    assert again.state == pb.FETCH_STATE_SUCCEEDED
    listed = await platform.models.ListFetches(pb.ListFetchesRequest(limit=1), **platform.tenant())
    assert listed.has_more
    rest = pb.ListFetchesRequest(after=listed.fetches[0].id)
    others = await platform.models.ListFetches(rest, **platform.tenant())
    assert {listed.fetches[0].id, *(one.id for one in others.fetches)} == {fetch.id, again.id}
    assert not others.has_more


async def test_an_embedder_comes_with_the_folders_of_its_steps(platform: Platform) -> None:
    fetch = await over(platform, await begin(platform, "embedder"))
    assert fetch.state == pb.FETCH_STATE_SUCCEEDED, fetch
    model = await platform.models.GetModel(pb.GetModelRequest(id="embedder"), **platform.tenant())
    assert model.task == pb.MODEL_TASK_EMBEDDING
    resolved = await platform.models_internal.ResolveModel(
        pb.ResolveModelRequest(project_id="proj-a", id="embedder")
    )
    brought = {file.path for file in resolved.manifest.files}
    assert EMBEDDER.keys() - brought == {"onnx/config.json", "openvino/model.safetensors"}


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("strange", "unsupported_module", "pooling_mode_max_tokens"),
        ("gated", "source_not_permitted", "windlass secrets put huggingface"),
        ("absent", "source_not_found", "does not have this repository"),
        ("pickled", "no_safetensors", "run code when loaded"),
        ("remote", "remote_code", "auto_map"),
    ],
)
async def test_what_cannot_become_one_leaves_nothing(
    platform: Platform, name: str, code: str, words: str
) -> None:
    fetch = await over(platform, await begin(platform, name))
    assert (fetch.state, fetch.error_code) == (pb.FETCH_STATE_FAILED, code)
    assert words in fetch.error_message
    assert fetch.finished_at
    await until(lambda: cleared(platform))
    found = await platform.models.ListModels(pb.ListModelsRequest(), **platform.tenant())
    assert not found.models


async def test_a_wish_that_is_none(platform: Platform) -> None:
    wishes: tuple[tuple[dict[str, Any], str], ...] = (
        ({"source": "s3://bucket/model"}, "invalid_source"),
        ({"source": "hf://acme/../../etc"}, "invalid_source"),
        ({"source": "hf://acme/a", "revision": "../x"}, "invalid_value"),
        ({"source": "hf://acme/a", "id": "a b"}, "invalid_model_id"),
        ({"source": "hf://acme/a", "is_global": True}, "insufficient_permissions"),
    )
    for wish, reason in wishes:
        call = platform.models.CreateFetch(pb.CreateFetchRequest(**wish), **platform.tenant())
        assert (await refused(call))[0] == reason, wish


async def test_another_process_goes_on_with_what_is_missing(
    database_url: str, tmp_path: Path, hub: Hub
) -> None:
    hub.held["model.safetensors"] = Event()
    before = len(OPEN["README.md"] + OPEN["config.json"])
    async with platform_on(database_url, tmp_path / "data", hub) as first:
        fetch = await begin(first, "small")
        assert (await begin(first, "small")).id == fetch.id

        async def begun() -> bool:
            return (await looked(first, fetch)).bytes_done == before

        await until(begun)
    brought = list(hub.given)
    async with platform_on(database_url, tmp_path / "data", hub) as second:
        # As time would: its holder is gone, and did not say so.
        async with second.app.database.begin() as connection:
            await connection.execute(fetches.update().values(lease_until=sa.func.now()))
        second.app.wake.touch("models.fetches")
        hub.held["model.safetensors"].set()
        assert (await over(second, fetch)).state == pb.FETCH_STATE_SUCCEEDED
    assert [one for one in hub.given if one in brought] == brought


async def test_a_fetch_says_what_it_waits_for(
    platform: Platform, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "_TELL_SECONDS", 0.05)
    hub.held["model.safetensors"] = Event()
    first, *_ = [await begin(platform, "small", id=f"held-{at}") for at in range(FETCHERS)]

    async def comes() -> bool:
        return bool((await looked(platform, first)).bytes_done)

    await until(comes)
    assert (await looked(platform, first)).waits_for == ""
    # Whoever could take it up has one that is held.
    last = await begin(platform, "small", id="last")
    assert "its turn" in (await looked(platform, last)).waits_for
    hub.held.pop("model.safetensors").set()
    assert (await over(platform, last)).waits_for == ""


async def test_a_fetch_is_cancelled(
    platform: Platform, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "_TELL_SECONDS", 0.05)
    hub.held["model.safetensors"] = Event()
    fetch = await begin(platform, "small")

    async def begun() -> bool:
        return "config.json" in await keys(platform)

    await until(begun)
    request = pb.CancelFetchRequest(id=fetch.id)
    for _ in range(2):
        done = await platform.models.CancelFetch(request, **platform.tenant())
        assert done.state == pb.FETCH_STATE_CANCELLED
    await until(lambda: cleared(platform))
    hub.held.pop("model.safetensors").set()
    ended = await over(platform, await begin(platform, "small"))
    assert ended.state == pb.FETCH_STATE_SUCCEEDED
    assert (await refused(platform.models.CancelFetch(
        pb.CancelFetchRequest(id=ended.id), **platform.tenant()
    )))[0] == "fetch_over"  # fmt: skip


async def test_a_hub_that_gives_other_bytes_is_asked_again_and_not_for_ever(
    platform: Platform, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "_FIRST_PAUSE", 0.01)
    monkeypatch.setattr(worker, "_LONGEST_PAUSE", 0.05)
    monkeypatch.setattr(worker, "MAX_FAILURES", 3)
    hub.lies.add("model.safetensors")
    fetch = await over(platform, await begin(platform, "small"))
    assert fetch.error_code == "source_unavailable"
    assert fetch.error_message == (
        "Gave up after 3 failed tries in a row: More than the announced "
        f"{len(WEIGHTS)} bytes arrived."
    )


async def test_a_hub_that_is_down_is_told_until_it_answers(
    platform: Platform, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "_FIRST_PAUSE", 0.01)
    monkeypatch.setattr(worker, "_LONGEST_PAUSE", 0.05)
    monkeypatch.setattr(worker, "MAX_FAILURES", 10_000)
    hub.down = True
    fetch = await begin(platform, "small")

    async def told() -> bool:
        found = await looked(platform, fetch)
        assert (found.error_code, found.error_message) == ("", "")
        return "failed: the hub responded with status 503. The next" in found.retry_reason

    await until(told)
    hub.down = False
    ended = await over(platform, fetch)
    assert (ended.state, ended.retry_reason) == (pb.FETCH_STATE_SUCCEEDED, "")
    assert not ended.error_message


async def test_another_project_sees_nothing_of_it(platform: Platform) -> None:
    fetch = await over(platform, await begin(platform, "small"))
    assert (await refused(looked(platform, fetch, "proj-b")))[0] == "fetch_not_found"
    call = platform.models.CancelFetch(
        pb.CancelFetchRequest(id=fetch.id), **platform.tenant("proj-b")
    )
    assert (await refused(call))[0] == "fetch_not_found"
    request = pb.ListFetchesRequest()
    found = await platform.models.ListFetches(request, **platform.tenant("proj-b"))
    assert not found.fetches


def test_the_page_on_fetching_is_true(tmp_path: Path, hub: Hub) -> None:
    """With the token that the project stored, and that nobody is shown."""
    settings = {"hub": {"endpoint": hub.url}, "agent": {"enabled": False}}
    with running(make_single(tmp_path / "data", settings)) as server:
        shell = Shell(server, tmp_path)
        environment = shell.environment | shell.owner
        environment |= {"PATH": f"{Path(PROGRAM[0]).parent}:{environment['PATH']}"}
        environment |= {"HF_TOKEN": TOKEN, "REPOSITORY": "acme/gated"}
        said = run(script("how-to/fetch-a-model.md"), environment, tmp_path)
        assert shell.object("models", "get", "gated")["windlass"]["kind"] == "base"
        assert TOKEN not in said
        missing = shell.run("models", "fetch", "hf://acme/absent")
        assert missing.returncode == 1
        assert "The hub does not have this repository." in missing.stderr


async def test_a_fetch_ends_where_the_quota_of_fetched_bytes_ends(
    database_url: str, tmp_path: Path, hub: Hub
) -> None:
    """Counted while it comes: the weights alone are more than the project may fetch in a day."""
    settings = Settings()
    settings.hub.endpoint = hub.url
    settings.quotas.fetched_bytes = 3000
    async with running_platform(database_url, tmp_path / "data", settings=settings) as platform:
        fetch = await over(platform, await begin(platform, "small"))
        assert (fetch.state, fetch.error_code) == (pb.FETCH_STATE_FAILED, "quota_exceeded")
        assert "bytes fetched in 24 hours" in fetch.error_message
        await until(lambda: cleared(platform))
        again = begin(platform, "small", id="again")
        reason, message = await refused(again)
        assert reason == "quota_exceeded"
        assert "its quota is 3000" in message
        # Another's is another's.
        request = pb.CreateFetchRequest(source="hf://acme/small")
        assert await platform.models.CreateFetch(request, **platform.tenant("proj-b"))


async def test_a_fetch_of_more_than_may_be_stored_does_not_begin(
    database_url: str, tmp_path: Path, hub: Hub
) -> None:
    settings = Settings()
    settings.hub.endpoint = hub.url
    settings.quotas.stored_bytes = 3000
    async with running_platform(database_url, tmp_path / "data", settings=settings) as platform:
        fetch = await over(platform, await begin(platform, "small"))
        assert (fetch.state, fetch.error_code) == (pb.FETCH_STATE_FAILED, "quota_exceeded")
        assert "stored bytes; its quota is 3000" in fetch.error_message
        assert fetch.bytes_done == 0
