"""A state that was saved goes on as if nothing had been."""

from pathlib import Path

import msgspec
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from windlass_vllm.optimizers.in_backward import InBackwardOptimizer
from windlass_vllm.optimizers.saving import load_state, save_state
from windlass_vllm.optimizers.settings import OptimizerSettings, apollo_mini
from windlass_vllm.refusal import Refused

CASES = {
    "apollo": OptimizerSettings(learning_rate=1e-2, rank=3, renewal=4),
    "mini": apollo_mini(1e-3),
    "kahan": OptimizerSettings(learning_rate=1e-2, rank=3, renewal=4, rounding="kahan"),
    "adamw": OptimizerSettings(kind="adamw", learning_rate=1e-2, weight_decay=0.1),
    "sgd": OptimizerSettings(kind="sgd", learning_rate=1e-2),
}


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(12, 20), nn.Tanh(), nn.Linear(20, 6)).bfloat16()


def train(net: nn.Module, optimizer: InBackwardOptimizer, steps: range) -> None:
    for step in steps:
        data = torch.randn(8, 12, generator=torch.Generator().manual_seed(step)).bfloat16()
        optimizer.backward(net(data).float().square().sum())


def optimizer_of(net: nn.Module, settings: OptimizerSettings) -> InBackwardOptimizer:
    return InBackwardOptimizer(net.named_parameters(), settings)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("at", [0, 3, 8])
def test_resumed_is_uninterrupted_to_the_bit(case: str, at: int, tmp_path: Path) -> None:
    settings, whole = CASES[case], model()
    uninterrupted = optimizer_of(whole, settings)
    train(whole, uninterrupted, range(17))

    first = model()
    begun = optimizer_of(first, settings)
    train(first, begun, range(at))
    save_state(tmp_path / "state", begun, "v1")
    second = model()
    second.load_state_dict(first.state_dict())
    resumed = optimizer_of(second, settings)
    load_state(tmp_path / "state", resumed, "v1")
    train(second, resumed, range(at, 17))

    assert [path.name for path in tmp_path.iterdir()] == ["state"]
    for name, weight in whole.named_parameters():
        assert torch.equal(weight, second.get_parameter(name)), name
    for name, state in uninterrupted.states.items():
        other = resumed.states[name]
        assert (state.seed, state.step) == (other.seed, other.step)
        assert state.tensors.keys() == other.tensors.keys()
        assert all(torch.equal(one, other.tensors[part]) for part, one in state.tensors.items())


def test_without_the_state_the_same_steps_lead_elsewhere(tmp_path: Path) -> None:
    """The comparison above can fail."""
    whole, other = model(), model()
    begun = optimizer_of(whole, CASES["apollo"])
    train(whole, begun, range(5))
    other.load_state_dict(whole.state_dict())
    train(whole, begun, range(5, 8))
    train(other, optimizer_of(other, CASES["apollo"]), range(5, 8))
    assert not torch.equal(whole[0].weight, other[0].weight)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    net = model()
    optimizer = optimizer_of(net, CASES["apollo"])
    train(net, optimizer, range(3))
    save_state(tmp_path / "state", optimizer, "v1")
    return tmp_path / "state"


def refused(path: Path, *, version: str = "v1", settings: str = "apollo") -> str:
    net = model()
    optimizer = optimizer_of(net, CASES[settings])
    with pytest.raises(Refused) as error:
        load_state(path, optimizer, version)
    assert all(state.step == 0 for state in optimizer.states.values())
    return error.value.reason


def test_a_state_of_another_version_or_setting_is_refused(saved: Path) -> None:
    assert refused(saved, version="v2") == "state_foreign"
    assert refused(saved, settings="mini") == "state_foreign"


def test_a_state_of_another_model_is_refused(saved: Path) -> None:
    other = nn.Linear(12, 20).bfloat16()
    with pytest.raises(Refused) as error:
        load_state(saved, optimizer_of(other, CASES["apollo"]), "v1")
    assert error.value.reason == "state_foreign"


def test_another_learning_rate_is_the_callers_matter(saved: Path) -> None:
    settings = msgspec.structs.replace(CASES["apollo"], learning_rate=0.5)
    optimizer = optimizer_of(model(), settings)
    load_state(saved, optimizer, "v1")
    assert optimizer.settings.learning_rate == 0.5
    assert optimizer.states["0.weight"].step == 3


@pytest.mark.parametrize("kept", [0, 7, 100, -1])
def test_a_cut_state_is_refused(saved: Path, kept: int) -> None:
    saved.write_bytes(saved.read_bytes()[:kept])
    assert refused(saved) == "state_damaged"


def test_a_state_whose_tensors_are_others_is_refused(saved: Path) -> None:
    tensors = load_file(saved)
    with safe_open(saved, framework="pt") as file:
        words = file.metadata()
    first = "0.weight.mean"
    for changed in (
        {first: torch.zeros(2, 2)},
        {first: tensors[first].half()},
        {first: torch.full_like(tensors[first], float("nan"))},
        {"9.weight.mean": torch.zeros(1)},
    ):
        save_file(tensors | changed, saved, metadata=words)
        assert refused(saved) == "state_damaged"
    save_file({name: one for name, one in tensors.items() if name != first}, saved, metadata=words)
    assert refused(saved) == "state_damaged"
    save_file(tensors, saved)
    assert refused(saved) == "state_damaged"
    assert refused(saved.with_name("none")) == "state_damaged"
