"""What is said of weights while they are brought, with a folder whose tries the test ends."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.core import backoff
from windlass_agent.download import DownloadError
from windlass_agent.keeper import bringing as subject


class Folder:
    """A place whose tries end as the test says."""

    def __init__(self) -> None:
        self.there = 0
        self.wanted: list[tuple[str, list[str]]] = []
        self.tries: list[asyncio.Future[None]] = []

    async def fetch(self, version_id: str, files: Any, **_: Any) -> Path:
        self.wanted.append((version_id, [file.url for file in files]))
        self.tries.append(asyncio.get_running_loop().create_future())
        await self.tries[-1]
        return Path()

    def draft_bytes(self, _: str) -> int:
        return self.there


async def test_a_failure_lasts_until_more_has_come_than_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subject, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(backoff.Backoff, "next", lambda _: 0.0)
    folder, said = Folder(), list[str]()
    task = asyncio.create_task(
        subject.bring_weights(
            folder,
            lambda: pb.EngineWorkload(model_version_id="mv-a", draft_version_id="mv-b"),
            lambda phase, reason, message: said.append(reason),
        )
    )

    async def fails(number: int) -> None:
        await until(lambda: len(folder.tries) == number)
        folder.tries[-1].set_exception(DownloadError("x"))
        await until(lambda: len(folder.tries) == number + 1)

    for number in (1, 2, 3):
        await fails(number)
    assert said == ["Downloading", *["DownloadFailed"] * 3]
    folder.there = 1
    await until(lambda: said[-1] == "Downloading")
    # What comes again and fails again is no progress.
    await fails(4)
    await asyncio.to_thread(folder.draft_bytes, "")
    assert said[-1] == "DownloadFailed"
    folder.tries[-1].set_result(None)
    await until(lambda: len(folder.tries) == 6)
    assert not task.done(), "its draft comes next"
    folder.tries[-1].set_result(None)
    await task


async def test_a_newer_order_of_another_draft_ends_nothing() -> None:
    def order(draft: str, url: str) -> pb.EngineWorkload:
        made = pb.EngineWorkload(model_version_id="mv-a", draft_version_id=draft)
        made.model_files.add(url=url)
        made.draft_files.add(url=url)
        return made

    folder, orders = Folder(), [order("mv-b", "old")]
    task = asyncio.create_task(subject.bring_weights(folder, lambda: orders[-1], lambda *_: None))
    await until(lambda: len(folder.tries) == 1)
    orders.append(order("mv-c", "new"))
    for number in (1, 2):
        await until(lambda: task.done() or len(folder.tries) == number)  # noqa: B023
        assert not task.done()
        folder.tries[-1].set_result(None)
    await task
    assert folder.wanted == [("mv-a", ["old"]), ("mv-b", ["old"])]
