"""The trainer that a configuration names, and what is said of a wrong one before it starts."""

import json
from pathlib import Path
from typing import Any

import pytest

from windlass.core.config import Settings
from windlass.core.config.tuning import TuningSection
from windlass.serve import findings
from windlass.tuning_api.trainers import making
from windlass.tuning_api.trainers.elsewhere import PodWish
from windlass.tuning_api.trainers.making import check_trainer, make_trainer
from windlass.tuning_api.trainers.null import NullTrainer
from windlass.tuning_api.trainers.placed import TrainersByModel
from windlass.tuning_api.trainers.port import RunNotOpen
from windlass.tuning_api.trainers.records import DType, OptimStep, Run, SampleRequest, Tensor

CONFIG = {"model_type": "llama", "max_position_embeddings": 64, "vocab_size": 96}


def model(folder: Path, config: Any, *, weights: bool = True) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    if weights:
        (folder / "model.safetensors").touch()
    return folder


def lora(**folders: Path) -> TuningSection:
    return TuningSection(trainer="lora", model_folders=folders)


def test_nothing_trains_unless_it_is_said(tmp_path: Path) -> None:
    folder = model(tmp_path / "m", CONFIG)
    for settings in (TuningSection(), TuningSection(model_folders={"m": folder})):
        assert list(make_trainer(settings, tmp_path, tmp_path).base_models) == []


def test_models_are_described_by_their_files(tmp_path: Path) -> None:
    one = model(tmp_path / "one", CONFIG)
    other = model(tmp_path / "other", {"model_type": "x", "text_config": CONFIG})
    settings = lora(one=one, other=other)
    assert check_trainer(settings) == []
    found = make_trainer(settings, tmp_path, tmp_path).base_models
    assert [(m.name, m.architecture) for m in found] == [("one", "llama"), ("other", "x")]
    assert {(m.max_context_length, m.vocabulary_size, m.max_rank) for m in found} == {(64, 96, 128)}


@pytest.mark.parametrize(
    "config",
    ["", "[]", "{", {**CONFIG, "vocab_size": "96"}, {**CONFIG, "max_position_embeddings": 0}],
)
def test_a_folder_that_does_not_say_what_it_takes_is_an_error(tmp_path: Path, config: Any) -> None:
    (finding,) = check_trainer(lora(m=model(tmp_path / "m", config)))
    assert (finding.level, finding.key) == ("error", "tuning.model_folders.m")


def test_a_folder_without_weights_or_no_folder_is_an_error(tmp_path: Path) -> None:
    empty = model(tmp_path / "m", CONFIG, weights=False)
    settings = lora(m=empty, n=tmp_path / "n")
    assert [one.key for one in check_trainer(settings)] == [
        "tuning.model_folders.m",
        "tuning.model_folders.n",
    ]
    assert [one.key for one in check_trainer(lora())] == ["tuning.model_folders"]
    known = findings(Settings(tuning=settings))
    assert set(check_trainer(settings)) <= set(known)


def test_a_machine_without_torch_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making, "find_spec", lambda name: None)
    (finding,) = check_trainer(lora(m=model(tmp_path / "m", CONFIG)))
    assert (finding.key, "windlass[train]" in finding.message) == ("tuning.trainer", True)
    assert check_trainer(TuningSection(trainer="null")) == []


def test_adapters_are_trained_where_the_operator_says(tmp_path: Path) -> None:
    folder = model(tmp_path / "m", CONFIG, weights=False)
    header = b'{"a":{"dtype":"BF16","shape":[5],"data_offsets":[0,10]}}'
    content = len(header).to_bytes(8, "little") + header + bytes(10)
    (folder / "model.safetensors").write_bytes(content)
    wishes: list[PodWish] = []

    def elsewhere(wish: PodWish) -> Any:
        wishes.append(wish)
        return object()

    with pytest.raises(ValueError, match="come together"):
        TuningSection(adapter_cluster="east")
    settings = TuningSection(
        trainer="lora", model_folders={"m": folder}, adapter_cluster="east", adapter_project="ours"
    )
    assert check_trainer(settings) == []
    (found,) = make_trainer(settings, tmp_path, tmp_path, elsewhere=elsewhere).base_models
    (wish,) = wishes
    assert (wish.role, wish.cluster, wish.model, wish.is_full) == ("trainer", "east", found, False)
    # Whoever asks first, it is in the operator's place.
    assert (wish.project("who asks"), found.parameters) == ("ours", 5)


async def test_runs_and_prompts_go_where_their_model_is() -> None:
    one, other = NullTrainer(["one"]), NullTrainer(["other"])
    both = TrainersByModel([one, other], NullTrainer([]))
    assert [m.name for m in both.base_models] == ["one", "other"]
    await both.open(Run("r", "p", "other"))
    await both.execute("r", [OptimStep()])
    assert await other.execute("r", []) == []
    with pytest.raises(RunNotOpen):
        await one.execute("r", [])
    prompt = Tensor(DType.INT32, (1,), bytes(4))
    wish = SampleRequest("one", None, prompt, count=1, max_tokens=1)
    assert await both.sample(wish) == await one.sample(wish)
    await both.close("r")
    for trainer in (both, other):
        with pytest.raises(RunNotOpen):
            await trainer.execute("r", [])
    await both.stop()
