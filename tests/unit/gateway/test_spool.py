"""The usage spool: nothing is lost by a crash, and damage stays where it is."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from windlass.core.spool import frame as frame_bytes
from windlass.gateway.usage.spool import UsageLine, UsageSpool, frame, read_segment


def line(number: int) -> UsageLine:
    return UsageLine(f"req_{number}", 1, "org", "proj", "ann", "key", "m", 1, 2, 3, 4, 5, 200)


def ids(folder: Path) -> list[str]:
    spool = UsageSpool(folder)
    return [one.id for path in spool.sealed() for one in read_segment(path)]


async def test_what_was_appended_is_read_back(tmp_path: Path) -> None:
    spool = UsageSpool(tmp_path)
    for number in range(3):
        spool.record(line(number))
    assert spool.sealed() == []
    spool.seal()
    assert ids(tmp_path) == ["req_0", "req_1", "req_2"]


async def test_a_line_of_the_release_before_is_read(tmp_path: Path) -> None:
    old = b'["req_0",1,"org","proj","ann","key","m",1,2,3,4,5,200]'
    (tmp_path / "1.log").write_bytes(frame_bytes(old))
    (found,) = read_segment(tmp_path / "1.log")
    assert found == line(0)
    assert (found.input_cached_tokens, found.estimated) == (0, False)


async def test_a_segment_belongs_to_its_writer_while_that_lives(tmp_path: Path) -> None:
    spool, other = UsageSpool(tmp_path), UsageSpool(tmp_path)
    spool.record(line(0))
    assert other.sealed() == []
    spool.seal()
    assert len(other.sealed()) == 1


async def test_segments_are_bounded(tmp_path: Path) -> None:
    spool = UsageSpool(tmp_path, segment_bytes=1000)
    for number in range(100):
        spool.record(line(number))
    spool.seal()
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert len(sizes) > 5
    assert max(sizes) < 1200
    assert ids(tmp_path) == [f"req_{number}" for number in range(100)]


async def test_a_torn_or_damaged_line_is_skipped(tmp_path: Path) -> None:
    good = [frame(line(number)) for number in range(4)]
    damaged = good[1].replace(b"req_1", b"req_9")
    (tmp_path / "1.log").write_bytes(good[0] + damaged + b"\x00\n" + good[2] + good[3][:-5])
    assert ids(tmp_path) == ["req_0", "req_2"]


async def test_records_wait_in_memory_while_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = UsageSpool(tmp_path)
    spool.record(line(0))
    real = os.write

    def full(descriptor: int, data: bytes) -> int:
        return real(descriptor, data[:10])

    monkeypatch.setattr(os, "write", full)
    spool.record(line(1))
    spool.record(line(2))
    monkeypatch.setattr(os, "write", real)
    spool.record(line(3))
    spool.seal()
    assert ids(tmp_path) == ["req_0", "req_1", "req_2", "req_3"]


WRITER = """
import sys, asyncio
from pathlib import Path
from windlass.gateway.usage.spool import UsageSpool
from tests.unit.gateway.test_spool import line

async def main():
    spool = UsageSpool(Path(sys.argv[1]), segment_bytes=2000)
    number = 0
    while True:
        spool.record(line(number))
        print(number, flush=True)
        number += 1

asyncio.run(main())
"""


def test_a_killed_writer_loses_nothing_that_it_acknowledged(tmp_path: Path) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert writer.stdout is not None
    while int(writer.stdout.readline()) < 50:
        pass
    writer.send_signal(signal.SIGKILL)
    acknowledged = [int(row) for row in writer.stdout.read().split()]
    writer.wait()
    found = ids(tmp_path)
    assert found == [f"req_{number}" for number in range(len(found))]
    assert len(found) > max(acknowledged, default=50)
