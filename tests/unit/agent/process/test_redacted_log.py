"""The log that is shipped: without paths, and the same bytes whenever it is read."""

import asyncio
from pathlib import Path

import pytest

from windlass_agent.executors.process.jobs import logs
from windlass_agent.executors.process.jobs.logs import RedactedLog, ship


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "job-1-1").mkdir()
    return tmp_path / "job-1-1" / "log"


def lines(log: Path) -> bytes:
    return b"".join(
        b"warning in %s/inputs/model/%d: \xff caf\xc3\xa9\r" % (bytes(log.parent), number)
        for number in range(200)
    )


def expected() -> bytes:
    return b"".join(b"warning in model/%d: \xff caf\xc3\xa9\r" % number for number in range(200))


async def test_what_is_stored_names_no_folder_of_the_machine(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much of it there is when it is read, and however much the other side takes."""
    monkeypatch.setattr(logs, "CHUNK_BYTES", 301)
    monkeypatch.setattr(logs, "POLL_SECONDS", 0.01)
    content, stored, ended = lines(log), bytearray(), asyncio.Event()

    async def write() -> None:
        for start in range(0, len(content), 97):
            with log.open("ab") as file:
                file.write(content[start : start + 97])
            await asyncio.sleep(0)
        ended.set()

    async def append(offset: int, data: bytes) -> int:
        assert offset <= len(stored)
        stored.extend(data[len(stored) - offset :][:250])
        return len(stored)

    async with asyncio.TaskGroup() as group:
        group.create_task(write())
        group.create_task(ship(log, append, ended))
    assert bytes(stored) == expected()
    assert log.read_bytes() == content, "the operator's copy is whole"


def test_a_later_life_of_the_agent_counts_alike(log: Path) -> None:
    log.write_bytes(lines(log))
    whole = RedactedLog(log).read(0, whole=True)
    assert whole == expected()
    assert RedactedLog(log).read(1234, whole=False) == whole[1234:]
    reader = RedactedLog(log)
    reader.read(2000, whole=False)
    assert reader.read(5, whole=False) == whole[5:], "the other side lost what it had"


def test_half_a_line_waits_for_its_end(log: Path) -> None:
    log.write_bytes(b"first\nin /root/se")
    reader = RedactedLog(log)
    assert reader.read(0, whole=False) == b"first\n"
    with log.open("ab") as file:
        file.write(b"cret/x")
    assert reader.read(6, whole=True) == b"in .../x"


def test_there_may_be_no_log_yet(log: Path) -> None:
    assert RedactedLog(log).read(0, whole=True) == b""
