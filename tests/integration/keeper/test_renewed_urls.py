"""Downloads that take longer than their URLs are good for, from a store that refuses old ones."""

import asyncio
import hashlib
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from aiohttp import web
from tests.support.waiting import PATIENCE, until

from windlass.api.clusters.v1 import clusters_pb2
from windlass.api.models.v1 import models_pb2
from windlass_agent.download import DownloadError, ModelCache, SharedStore
from windlass_agent.download import transfer as subject
from windlass_agent.executors.process.prefetches import PrefetchDriver

CONTENT = {f"part-{number}": f"content {number}".encode() for number in range(3)}


class Origin:
    """Files whose URLs are good until so many were answered by them; `signed` are the newest."""

    def __init__(self) -> None:
        self.url = ""
        self.good = 1
        self.answers = 10
        self.asked: Counter[str] = Counter()
        # Called once a URL is refused, as when a fresh order comes at that time.
        self.refuses: Callable[[], None] = lambda: None

    def signed(self, *, by: int | None = None) -> list[models_pb2.FileUrl]:
        return [
            models_pb2.FileUrl(
                path=path,
                url=f"{self.url}/{path}?by={by or self.good}",
                bytes=len(content),
                sha256=hashlib.sha256(content).digest(),
            )
            for path, content in CONTENT.items()
        ]

    async def answer(self, request: web.Request) -> web.Response:
        path = request.match_info["path"]
        if request.query["by"] != str(self.good) or not self.answers:
            self.refuses()
            raise web.HTTPForbidden
        self.answers -= 1
        self.asked[path] += 1
        return web.Response(body=CONTENT[path])


@pytest.fixture
async def origin(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Origin]:
    # One file after the other, so that a URL can expire between them.
    monkeypatch.setattr(subject, "_PARALLEL", 1)
    made = Origin()
    app = web.Application()
    app.router.add_get("/{path}", made.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = "http://{}:{}".format(*runner.addresses[0][:2])
    yield made
    await runner.cleanup()


@pytest.fixture(params=["cache", "store"])
async def kept(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[ModelCache | SharedStore]:
    async with AsyncExitStack() as stack:
        if request.param == "cache":
            yield ModelCache(tmp_path / "kept")
        else:
            (tmp_path / "kept").mkdir()
            store = SharedStore(tmp_path / "kept")
            await stack.enter_async_context(store.open())
            yield store
    # Nothing half is left behind.
    assert not list((tmp_path / "kept").glob(".*.part"))


def brought(folder: Path) -> bool:
    return {path.name: path.read_bytes() for path in folder.iterdir()} == CONTENT


async def test_urls_that_expire_on_the_way_are_replaced_by_the_newest(
    origin: Origin, kept: ModelCache | SharedStore
) -> None:
    order = [origin.signed()]
    origin.answers = 2

    def renew() -> None:
        origin.good, origin.answers = 2, 10
        order.append(origin.signed())

    origin.refuses = renew
    assert brought(await kept.fetch("mv-a", order[0], renewed=lambda: order[-1]))
    assert origin.asked == dict.fromkeys(CONTENT, 1)


async def test_the_next_try_brings_what_is_missing(
    origin: Origin, kept: ModelCache | SharedStore
) -> None:
    origin.answers = 2
    with pytest.raises(DownloadError, match="HTTP 403"):
        await kept.fetch("mv-a", origin.signed())
    assert kept.draft_bytes("mv-a") == sum(file.bytes for file in origin.signed()[1:])
    origin.good, origin.answers = 2, 10
    assert brought(await kept.fetch("mv-a", origin.signed()))
    assert not kept.draft_bytes("mv-a")
    assert origin.asked == dict.fromkeys(CONTENT, 1)


async def test_an_order_of_other_content_renews_no_url(
    origin: Origin, kept: ModelCache | SharedStore
) -> None:
    other = origin.signed()
    for file in other:
        file.url, file.sha256 = "http://127.0.0.1:9/x", bytes(32)
    assert brought(await kept.fetch("mv-a", origin.signed(), renewed=lambda: other))


async def test_a_prefetch_goes_on_with_the_urls_of_its_newest_order(
    origin: Origin, tmp_path: Path
) -> None:
    origin.answers = 2
    driver = PrefetchDriver(ModelCache(tmp_path / "models"), lambda: None)

    def order(generation: int) -> clusters_pb2.Workload:
        return clusters_pb2.Workload(
            id="pre-a",
            generation=generation,
            desired=clusters_pb2.DESIRED_STATE_RUNNING,
            prefetch=clusters_pb2.PrefetchWorkload(model_version_id="mv-a", files=origin.signed()),
        )

    await driver.apply(order(1))
    task = driver._brought["pre-a"].task
    assert task is not None

    def renew() -> None:
        origin.good, origin.answers = 2, 10
        driver._brought["pre-a"].workload = order(2)

    origin.refuses = renew
    await task
    (status,) = driver.statuses()
    assert (status.phase, status.generation) == (clusters_pb2.PHASE_SUCCEEDED, 2)
    assert origin.asked == dict.fromkeys(CONTENT, 1)
    await driver.close()


async def test_no_file_is_closed_while_a_thread_still_writes_it(
    origin: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the agent opens next would have its number, and get what the thread writes."""
    writes, go_on = threading.Event(), threading.Event()

    def update(_: bytes) -> None:
        writes.set()
        go_on.wait(10)

    def is_open() -> bool:
        links = list[str]()
        for link in Path("/proc/self/fd").iterdir():
            with suppress(FileNotFoundError):
                links.append(str(link.readlink()))
        return any(f"{tmp_path}/" in link and ".part-0.part" in link for link in links)

    monkeypatch.setattr(
        subject, "hashlib", SimpleNamespace(sha256=lambda: SimpleNamespace(update=update))
    )
    first = [file for file in origin.signed() if file.path == "part-0"]
    fetching = asyncio.create_task(ModelCache(tmp_path / "kept").fetch("mv-a", first))
    await asyncio.to_thread(writes.wait, 10)
    fetching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetching
    assert is_open()
    go_on.set()
    del fetching
    async with asyncio.timeout(PATIENCE):
        await until(lambda: not is_open())
