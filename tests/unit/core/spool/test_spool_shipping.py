"""What a spool keeps is sent until it arrives, and the rest at the end."""

import asyncio
from pathlib import Path

import grpc
import pytest
from tests.support.waiting import until

from windlass.core.spool import DurableSpool, SpoolShipper, read_lines, shipping


class Receiver:
    """Stands for the service that takes rows, which may be away."""

    def __init__(self) -> None:
        self.rows: list[bytes] = []
        self.away = False
        self.tries = 0

    async def send(self, path: Path) -> None:
        self.tries += 1
        rows = list(read_lines(path))
        if self.away:
            code = grpc.StatusCode.UNAVAILABLE
            raise grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata())
        self.rows += rows


def make(folder: Path) -> tuple[DurableSpool, Receiver, SpoolShipper]:
    spool, receiver = DurableSpool(folder), Receiver()
    return spool, receiver, SpoolShipper("audit", spool, receiver.send, flush_seconds=0)


async def test_what_cannot_arrive_is_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipping, "RETRY_SECONDS", 0.01)
    spool, receiver, shipper = make(tmp_path)
    receiver.away = True
    running = asyncio.create_task(shipper.run())
    spool.append(b"one")
    await until(lambda: receiver.tries > 2)
    receiver.away = False
    await until(lambda: receiver.rows == [b"one"])
    spool.append(b"two")
    await until(lambda: receiver.rows == [b"one", b"two"])
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert list(tmp_path.iterdir()) == []


async def test_the_rest_is_sent_at_the_end(tmp_path: Path) -> None:
    spool, receiver, shipper = make(tmp_path)
    running = asyncio.create_task(shipper.run())
    spool.append(b"first")
    await until(lambda: receiver.rows == [b"first"])
    spool.append(b"last")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert receiver.rows == [b"first", b"last"]


async def test_a_segment_that_another_process_sends_holds_up_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool, receiver, shipper = make(tmp_path)
    spool.append(b"mine")
    spool.seal()
    await spool.synced()
    there = spool.sealed()
    monkeypatch.setattr(spool, "sealed", lambda: [tmp_path / "gone.log", *there])
    assert await shipper.ship()
    assert receiver.rows == [b"mine"]
