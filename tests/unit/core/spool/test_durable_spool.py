"""Durability: every line is synced, and the folder only for each new segment."""

import os
from pathlib import Path

import pytest

from windlass.core.spool import DurableSpool, read_lines


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that were synced, in order."""
    calls: list[str] = []

    def note(name: str) -> None:
        real = getattr(os, name)

        def call(descriptor: int) -> None:
            calls.append(name)
            real(descriptor)

        monkeypatch.setattr(os, name, call)

    note("fdatasync")
    note("fsync")
    return calls


async def test_the_folder_is_synced_once_for_each_segment(
    tmp_path: Path, synced: list[str]
) -> None:
    spool = DurableSpool(tmp_path / "spool")
    for line in (b"one", b"two"):
        spool.append(line)
        await spool.synced()
    assert synced == ["fdatasync", "fsync", "fdatasync"]
    spool.seal()
    spool.append(b"three")
    await spool.synced()
    assert synced[3:] == ["fdatasync", "fdatasync", "fsync"]
    await spool.synced()
    assert len(synced) == 6
    spool.seal()
    await spool.synced()
    assert [line for path in spool.sealed() for line in read_lines(path)] == [
        b"one", b"two", b"three",
    ]  # fmt: skip


async def test_a_folder_that_could_not_be_synced_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = DurableSpool(tmp_path / "spool")

    def fail(descriptor: int) -> None:
        raise OSError("no medium")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", fail)
        spool.append(b"one")
        await spool.synced()
    tried: list[int] = []
    monkeypatch.setattr(os, "fsync", tried.append)
    spool.append(b"two")
    await spool.synced()
    assert len(tried) == 1
