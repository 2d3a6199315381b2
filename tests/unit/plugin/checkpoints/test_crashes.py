"""Loss of power at any point leaves one version or the next, whole.

A scenario is run once on a disk that remembers; then what may be left after each of its steps is
laid out as a folder, opened, and compared.
"""

import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.checkpoints.crashing import PowerLoss, RecordingDisk, Step
from tests.support.checkpoints.models import read_model, same, weights, write_model

from windlass_vllm.checkpoints.checkpoint import BlockCheckpoint
from windlass_vllm.checkpoints.diagnosis import diagnose_folder, sync_folder
from windlass_vllm.checkpoints.disk import Disk
from windlass_vllm.checkpoints.folder import create_checkpoint
from windlass_vllm.refusal import Refused

Model = dict[str, torch.Tensor]


@dataclass
class Scenario:
    """What was done to a folder, and which version was promised after how many steps."""

    before: dict[str, bytes]
    steps: list[Step]
    models: dict[str, Model]
    promises: list[tuple[int, str]]

    def allowed(self, crash: int) -> list[str]:
        """The versions that may be found after a crash behind some steps."""
        names = [name for _, name in self.promises]
        kept = max(place for place, (steps, _) in enumerate(self.promises) if steps <= crash)
        return names[kept : kept + 2]


def sparse(model: Model, number: int) -> Model:
    changed = {name: one.clone() for name, one in model.items()}
    changed["embed.weight"][number * 7 % 64, 5] = number
    changed["bias"][332] = number
    changed["up.weight"][:40] = number
    return changed


def dense(model: Model, number: int) -> Model:
    changed = sparse(model, number)
    changed["embed.weight"] = changed["embed.weight"] + number
    return changed


def run_scenario(folder: Path) -> Scenario:
    """Three sparse versions, a settling, a dense one, and one more that is logged alone."""
    model = weights()
    checkpoint = create_checkpoint(write_model(folder / "model", model), folder / "run", "v0")
    disk = RecordingDisk(checkpoint)
    scenario = Scenario(disk.before, disk.steps, {"v0": model}, [(0, "v0")])
    with BlockCheckpoint(checkpoint, disk=disk) as open_one:
        for number, change in enumerate((sparse, sparse, None, sparse, dense, sparse, None), 1):
            if change is None:
                open_one.settle()
                continue
            model = change(model, number)
            open_one.write(model, f"v{number}")
            scenario.models[f"v{number}"] = model
            scenario.promises.append((len(disk.steps), f"v{number}"))
    return scenario


@pytest.fixture(scope="module")
def scenario() -> Iterator[Scenario]:
    with tempfile.TemporaryDirectory() as name:
        yield run_scenario(Path(name))


def is_whole(folder: Path, scenario: Scenario, allowed: list[str]) -> None:
    found = diagnose_folder(folder)
    assert found.version in allowed
    assert found.whole
    synced, _ = sync_folder(folder)
    assert synced.version == synced.settled == found.version
    assert synced.whole
    assert (synced.unsettled, synced.torn) == (0, 0)
    assert same(read_model(folder), scenario.models[found.version])
    assert sorted(path.name for path in (folder / ".windlass").iterdir()) == ["log"]


def crashed(
    scenario: Scenario, crash: int, fate: Callable[[int], float], folder: Path
) -> list[str]:
    """Lays out what a crash left; returns the versions that may be found there."""
    PowerLoss(scenario.before, scenario.steps[:crash]).leave(folder, fate)
    return scenario.allowed(crash)


def test_the_scenario_writes_in_every_way(scenario: Scenario) -> None:
    kinds = {(step.kind, step.name) for step in scenario.steps}
    assert ("rename", ".windlass/log.next") in kinds
    assert any(kind == "rename" and "model" in name for kind, name in kinds)
    assert any(kind == "write" and name.startswith("model") for kind, name in kinds)
    assert len(scenario.models) == 6


FATES: dict[str, Callable[[int], float]] = {
    "all is lost": lambda _: 0,
    "all is there": lambda _: 1,
    "every write is half there": lambda _: 0.5,
    "every write is half there, the end of it": lambda _: 0.501,
    "the first is lost": lambda number: float(number != 0),
    "the first alone is there": lambda number: float(number == 0),
    "every other is lost": lambda number: number % 2,
}


@pytest.mark.parametrize("fate", FATES)
def test_after_every_step_there_is_a_whole_version(
    fate: str, scenario: Scenario, tmp_path: Path
) -> None:
    for crash in range(len(scenario.steps) + 1):
        folder = tmp_path / str(crash)
        allowed = crashed(scenario, crash, FATES[fate], folder)
        is_whole(folder, scenario, allowed)
        shutil.rmtree(folder)


def test_each_single_write_may_be_lost_or_come_alone(scenario: Scenario, tmp_path: Path) -> None:
    for crash in range(0, len(scenario.steps) + 1):
        for one in range(PowerLoss(scenario.before, scenario.steps[:crash]).pending):
            for lost in (True, False):
                folder = tmp_path / f"{crash}-{one}-{lost}"
                fate = lambda number, one=one, lost=lost: float((number == one) != lost)  # noqa: E731
                allowed = crashed(scenario, crash, fate, folder)
                is_whole(folder, scenario, allowed)
                shutil.rmtree(folder)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_mix_of_lost_and_torn_writes_leaves_a_whole_version(
    data: st.DataObject, scenario: Scenario
) -> None:
    """And so does a second loss of power, while the first is mended."""
    crash = data.draw(st.integers(0, len(scenario.steps)))
    chance = random.Random(data.draw(st.integers(0, 2**32)))
    with tempfile.TemporaryDirectory() as name:
        first, second = Path(name) / "first", Path(name) / "second"
        allowed = crashed(scenario, crash, lambda _: _fate(chance), first)
        version = diagnose_folder(first).version
        assert version in allowed
        disk = RecordingDisk(first)
        BlockCheckpoint(first, disk=disk).close()
        again = data.draw(st.integers(0, len(disk.steps)))
        PowerLoss(disk.before, disk.steps[:again]).leave(second, lambda _: _fate(chance))
        is_whole(second, scenario, [version])
        is_whole(first, scenario, [version])


def _fate(chance: random.Random) -> float:
    return chance.choice((0.0, 1.0, chance.random()))


def test_a_disk_that_lies_about_syncing_is_found_out(scenario: Scenario, tmp_path: Path) -> None:
    """The model of the disk can fail the tests above."""
    without = [step for step in scenario.steps if not step.kind.startswith("sync")]
    bad = 0
    for crash in range(len(without) + 1):
        folder = tmp_path / str(crash)
        PowerLoss(scenario.before, without[:crash]).leave(folder, lambda number: number % 2)
        try:
            bad += not diagnose_folder(folder).whole
        except Refused:
            bad += 1
    assert bad


class FullDisk(Disk):
    """A disk that has so many bytes left; overwriting takes none."""

    def __init__(self, folder: Path, left: int) -> None:
        super().__init__(folder)
        self.left = left

    def write(self, name: str, offset: int, content: bytes | memoryview) -> None:
        path = self.folder / name
        size = path.stat().st_size if path.exists() else 0
        more = max(0, offset + len(content) - size)
        if more > self.left:
            super().write(name, offset, memoryview(content)[: len(content) // 2])
            raise Refused("disk_full", name)
        self.left -= more
        super().write(name, offset, content)


def fill(checkpoint: BlockCheckpoint, model: Model) -> None:
    checkpoint.write(model, "v1")
    checkpoint.settle()
    checkpoint.write(dense(model, 9), "v2")


@pytest.mark.parametrize("change", [sparse, dense])
@pytest.mark.parametrize("left", [0, 10, 5_000, 12_000, 20_000, 30_000])
def test_a_full_disk_leaves_the_version_before(
    left: int, change: Callable[[Model, int], Model], tmp_path: Path
) -> None:
    old = weights()
    folder = create_checkpoint(write_model(tmp_path / "model", old), tmp_path / "run", "v0")
    new = change(old, 3)
    checkpoint = BlockCheckpoint(folder, disk=FullDisk(folder, left))
    with pytest.raises(Refused) as refused:
        fill(checkpoint, new)
    assert refused.value.reason == "disk_full"
    with pytest.raises(Refused) as closed:
        checkpoint.write(new, "v1")
    assert closed.value.reason == "checkpoint_closed"
    found = diagnose_folder(folder)
    assert found.whole
    with BlockCheckpoint(folder, disk=FullDisk(folder, 2_000)) as again:
        assert again.version == found.version
    models = {"v0": old, "v1": new}
    assert same(read_model(folder), models[found.version])


def test_the_systems_own_full_disk_is_named_so() -> None:
    with pytest.raises(Refused) as refused, Disk(Path("/dev")) as disk:
        disk.write("full", 0, b"x")
    assert refused.value.reason == "disk_full"
