"""Copies of checkpoints on this machine: which stay, and which go."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from windlass.tuning.execution.folders import CheckpointFolders


class WrittenModels:
    """Writes what a prefix names: a model, or an adapter without a configuration."""

    async def download(self, prefix: str, folder: Path) -> None:
        name = "adapter_config.json" if prefix.startswith("adapter") else "config.json"
        (folder / name).write_text("{}")


async def test_models_and_adapters_go_once_nothing_has_read_them_for_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = 0.0
    monkeypatch.setattr("windlass.tuning.execution.folders.monotonic", lambda: at)
    blobs: Any = WrittenModels()
    kept = CheckpointFolders(tmp_path / "tuning", blobs)

    async def read(name: str) -> Path:
        async with kept.kept(name, name, "session-parked") as folder:
            return folder

    model, adapter = await read("model"), await read("adapter")
    at = 50.0
    await kept.rest(60.0)
    assert await read("model") == model, "it stays for the next time"
    async with kept.kept("model", "model", "session-parked") as used:
        at = 200.0
        # Whoever reads it goes on, though its session was parked.
        await kept.forget("session-parked")
        await kept.rest(60.0)
        assert used == model
        assert used.is_dir()
    await kept.rest(60.0)
    assert model.is_dir()
    at = 261.0
    await asyncio.gather(kept.rest(60.0), kept.rest(60.0))
    assert not model.exists()
    assert not adapter.exists(), "it was read at first alone"
    assert await read("model") != model
    await kept.close()
    assert not (tmp_path / "tuning").exists()
