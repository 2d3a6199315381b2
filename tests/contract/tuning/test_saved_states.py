"""A saved state resumed is the run uninterrupted, to the bit; anything else is refused."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.factories import tuning_engines as make

from windlass_agent.tuning.engine import TuningEngine
from windlass_agent.tuning.requests.operations import (
    Barrier,
    ExportAdapter,
    LossResult,
    ReadState,
    WriteState,
)
from windlass_agent.tuning.requests.refusal import TuningRefused


def opened(**spec: Any) -> TuningEngine:
    engine = make.engine()
    engine.open("run", make.spec(exclusive=True, **spec))
    return engine


def done(engine: TuningEngine, operation: Barrier) -> Any:
    (result,) = make.finished(engine, [engine.submit("run", operation)])
    return result


def refused(engine: TuningEngine, operation: Barrier) -> str:
    future = engine.submit("run", operation)
    make.drive(engine)
    error = future.exception(timeout=0)
    assert isinstance(error, TuningRefused)
    return error.reason


def begin(engine: TuningEngine) -> None:
    """Two steps, and gradients that are not applied yet."""
    for draw in (1, 2):
        make.losses(engine, "run", make.learning(make.example(draw), make.example(9 + draw, 7)))
        make.stepped(engine, "run")
    make.losses(engine, "run", make.learning(make.example(3)))


def go_on(engine: TuningEngine) -> LossResult:
    make.stepped(engine, "run")
    make.losses(engine, "run", make.learning(make.example(4)))
    make.stepped(engine, "run")
    (result,) = make.losses(engine, "run", make.learning(make.example(5)))
    return result


def saved(folder: Path) -> Path:
    engine = opened()
    begin(engine)
    done(engine, WriteState(folder))
    return folder


def test_a_resumed_run_is_the_uninterrupted_one(tmp_path: Path) -> None:
    whole = opened()
    begin(whole)
    expected = go_on(whole)
    resumed = opened(seed=99)
    done(resumed, ReadState(folder=saved(tmp_path / "state")))
    found = go_on(resumed)
    assert np.array_equal(expected.logprobs[0], found.logprobs[0])
    assert expected.metrics == found.metrics
    assert make.same_bits(make.weights(whole, "run"), make.weights(resumed, "run"))
    assert make.same_bits(make.gradients(whole, "run"), make.gradients(resumed, "run"))
    assert make.same_bits(whole.state("run").moments, resumed.state("run").moments)


@pytest.mark.parametrize("lost", ["moments", "gradients", "step"])
def test_each_part_of_a_state_counts(tmp_path: Path, lost: str) -> None:
    resumed = opened()
    done(resumed, ReadState(folder=saved(tmp_path / "state")))
    setattr(resumed.state("run"), lost, 0 if lost == "step" else {})
    whole = opened()
    begin(whole)
    assert not np.array_equal(go_on(whole).logprobs[0], go_on(resumed).logprobs[0])


def test_without_the_optimizer_the_weights_alone_come_back(tmp_path: Path) -> None:
    engine = opened(seed=99)
    done(engine, ReadState(folder=saved(tmp_path / "state"), optimizer=False))
    whole = opened()
    begin(whole)
    state = engine.state("run")
    assert make.same_bits(dict(state.weights), make.weights(whole, "run"))
    assert (state.moments, state.gradients, state.step) == ({}, {}, 0)


def test_an_exported_adapter_can_be_trained_on(tmp_path: Path) -> None:
    whole = opened(alpha=20.0)
    begin(whole)
    result = done(whole, ExportAdapter(tmp_path / "adapter"))
    assert result.size == sum(file.stat().st_size for file in (tmp_path / "adapter").iterdir())
    engine = opened(seed=99)
    done(engine, ReadState(folder=tmp_path / "adapter"))
    assert make.same_bits(make.weights(whole, "run"), make.weights(engine, "run"))
    assert engine.state("run").scale == 5.0


def test_a_state_fills_an_empty_folder_and_no_other(tmp_path: Path) -> None:
    engine = opened()
    (tmp_path / "empty").mkdir()
    result = done(engine, WriteState(tmp_path / "empty"))
    names = sorted(file.name for file in (tmp_path / "empty").iterdir())
    parts = [f"{part}.safetensors" for part in ("generator", "gradients", "optimizer", "weights")]
    assert names == sorted(["manifest.json", *parts])
    assert result.size == sum(file.stat().st_size for file in (tmp_path / "empty").iterdir())
    assert refused(engine, WriteState(tmp_path / "empty")) == "exists"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty"]


def flip(folder: Path, name: str) -> None:
    data = bytearray((folder / name).read_bytes())
    data[-1] ^= 1
    (folder / name).write_bytes(data)


def cut(folder: Path) -> None:
    os.truncate(folder / "weights.safetensors", 100)


def rewrite(folder: Path, **words: Any) -> None:
    manifest = json.loads((folder / "manifest.json").read_bytes())
    (folder / "manifest.json").write_text(json.dumps({**manifest, **words}))


DAMAGE: dict[str, tuple[str, Callable[[Path], None]]] = {
    "a bit of the weights": ("damaged_state", lambda at: flip(at, "weights.safetensors")),
    "a bit of the moments": ("damaged_state", lambda at: flip(at, "optimizer.safetensors")),
    "a bit of the gradients": ("damaged_state", lambda at: flip(at, "gradients.safetensors")),
    "a bit of the generator": ("damaged_state", lambda at: flip(at, "generator.safetensors")),
    "weights cut short": ("damaged_state", cut),
    "a file missing": ("damaged_state", lambda at: (at / "gradients.safetensors").unlink()),
    "no manifest": ("state_not_found", lambda at: (at / "manifest.json").unlink()),
    "no JSON": ("damaged_state", lambda at: flip(at, "manifest.json")),
    "another base": ("foreign_base", lambda at: rewrite(at, base="sha256:other")),
    "another rank": ("damaged_state", lambda at: rewrite(at, rank=5)),
    "a word too many": ("damaged_state", lambda at: rewrite(at, hooks=["os.system"])),
    "a file too many": ("damaged_state", lambda at: rewrite(at, files={"../x": {}})),
}


@pytest.mark.parametrize(("reason", "damage"), DAMAGE.values(), ids=DAMAGE.keys())
def test_a_state_that_is_not_as_it_was_saved_is_refused(
    tmp_path: Path, reason: str, damage: Callable[[Path], None]
) -> None:
    damage(saved(tmp_path / "state"))
    engine = opened()
    begin(engine)
    before = engine.state("run")
    assert refused(engine, ReadState(folder=tmp_path / "state")) == reason
    assert engine.state("run") is before


def test_a_state_of_another_shape_is_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path / "state")
    assert refused(opened(rank=5), ReadState(folder=folder)) == "other_shape"
    assert refused(opened(targets=frozenset(("mlp",))), ReadState(folder=folder)) == "other_shape"


def test_a_disk_that_takes_nothing_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    engine = opened()
    assert refused(engine, WriteState(tmp_path / "file" / "state")) == "not_written"
    assert refused(engine, ExportAdapter(tmp_path / "file")) == "exists"
    begin(engine)


def test_a_write_that_breaks_off_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = opened()

    def full(folder: Path, manifest: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("windlass_agent.tuning.state.saving.write_manifest", full)
    assert refused(engine, WriteState(tmp_path / "state")) == "not_written"
    assert list(tmp_path.iterdir()) == []
