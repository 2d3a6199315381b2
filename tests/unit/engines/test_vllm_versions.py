"""vLLM's weights when something fails in the midst of an update: the old version, or no process."""

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from windlass.inference_api.errors import ApiError
from windlass.weight_versions import ArrayBytes, FolderMedium, TensorBytes, VersionPublisher
from windlass_agent.engines.vllm.in_place import VllmVersions

OLD = np.arange(4000, dtype=np.float32)


class Engine:
    """What vLLM would have loaded, and what fails of it."""

    def __init__(self) -> None:
        self.loaded: list[float] = []
        self.paused = False
        self.fails = 0
        self.keeps_cache = False
        self.told = ""

    async def pause_generation(self, *, mode: str, clear_cache: bool) -> None:
        assert (mode, clear_cache) == ("wait", True)
        self.paused = True

    async def resume_generation(self) -> None:
        self.paused = False

    async def collective_rpc(self, method: str, *, kwargs: dict[str, Any]) -> None:
        assert self.paused
        assert method == "reload_weights"
        if self.fails:
            self.fails -= 1
            raise RuntimeError("a worker failed")
        (file,) = Path(kwargs["weights_path"]).glob("*.safetensors")
        self.loaded.append(float(load_file(file)["w"][1]))

    async def reset_prefix_cache(
        self, reset_running_requests: bool = False, reset_connector: bool = False
    ) -> bool:
        assert self.paused
        assert not reset_running_requests
        assert reset_connector
        kept, self.keeps_cache = self.keeps_cache, False
        return not kept

    async def update_weight_version(self, new_version: str) -> None:
        self.told = new_version


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
async def versions(tmp_path: Path, engine: Engine) -> AsyncIterator[VllmVersions]:
    """At version 1, with a version 2 on its medium that has another second element."""
    for name in ("model", "scratch", "volume"):
        (tmp_path / name).mkdir()
    save_file({"w": OLD}, tmp_path / "model" / "model.safetensors")
    publisher = VersionPublisher(FolderMedium(tmp_path / "volume", None), tmp_path / "scratch")
    await publisher.start(weights(OLD[1]))
    await publisher.put(1, weights(11.0))
    await publisher.put(2, weights(22.0))
    publisher.close()
    made = VllmVersions(engine, tmp_path / "model", tmp_path / "scratch")
    await made.update(1, tmp_path / "volume", 1)
    assert (engine.loaded, engine.told) == ([11.0], "1")
    yield made
    made.close()


def weights(second: float) -> dict[str, TensorBytes]:
    content = OLD.copy()
    content[1] = second
    return {"w": ArrayBytes(content.view(np.uint8), "F32", (4000,))}


async def test_a_load_that_fails_brings_the_version_before_back(
    versions: VllmVersions, engine: Engine, tmp_path: Path
) -> None:
    engine.fails = 1
    with pytest.raises(RuntimeError, match="a worker failed"):
        await versions.update(2, tmp_path / "volume", 1)
    assert (versions.version, engine.told, engine.paused) == (1, "1", False)
    assert engine.loaded == [11.0, 11.0]
    await versions.update(2, tmp_path / "volume", 1)
    assert (versions.version, engine.told, engine.loaded[-1]) == (2, "2", 22.0)


async def test_a_cache_that_is_not_forgotten_is_a_failure(
    versions: VllmVersions, engine: Engine, tmp_path: Path
) -> None:
    engine.keeps_cache = True
    with pytest.raises(ApiError, match="have not ended"):
        await versions.update(2, tmp_path / "volume", 1)
    assert (versions.version, engine.told, engine.loaded) == (1, "1", [11.0, 22.0, 11.0])


async def test_an_engine_that_loads_neither_version_ends(
    versions: VllmVersions, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[tuple[int, int]] = []

    def end(*told: int) -> None:
        ended.append((told[0], told[1]))
        raise SystemExit

    monkeypatch.setattr(os, "kill", end)
    engine.fails = 2
    with pytest.raises(SystemExit):
        await versions.update(2, tmp_path / "volume", 1)
    assert ended == [(os.getpid(), signal.SIGKILL)]


async def test_a_model_without_safetensors_takes_no_version(tmp_path: Path, engine: Engine) -> None:
    with pytest.raises(ApiError) as refusal:
        await VllmVersions(engine, tmp_path, tmp_path).update(1, tmp_path, 1)
    assert refusal.value.code == "wrong_tensor"
    assert list(tmp_path.iterdir()) == []
