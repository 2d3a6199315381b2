"""A trainer's process that ends before it has read its token."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from windlass.tuning_api.trainers.remote.process import TrainerCommand, TuningProcess


class Pipe:
    """Says what uvloop says once the other side has ended."""

    def write(self, content: bytes) -> None:
        raise RuntimeError("unable to perform operation on <WriteUnixTransport closed=True>")

    def close(self) -> None:
        """Closes nothing."""


class Ended:
    pid, returncode, stdin = 1, -6, Pipe()

    async def wait(self) -> int:
        return self.returncode


async def test_one_that_ends_at_once_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def started(*words: str, **options: Any) -> Ended:
        return Ended()

    monkeypatch.setattr(asyncio, "create_subprocess_exec", started)
    process = await TuningProcess.start(TrainerCommand("toy", tmp_path, 1, tmp_path, tmp_path))
    assert process.has_ended
    assert list(tmp_path.glob("t-*"))
    await process.end()
    assert not list(tmp_path.glob("t-*"))
