"""APOLLO beside its authors' implementation, and what it keeps."""

import sys
import types
from collections.abc import Iterator

import pytest
import torch
from torch import nn

from windlass_vllm.optimizers.in_backward import InBackwardOptimizer, is_matrix
from windlass_vllm.optimizers.rules import MEAN, NORM, SQUARE
from windlass_vllm.optimizers.settings import OptimizerSettings, apollo_mini
from windlass_vllm.refusal import Refused


class Anything(types.ModuleType):
    """A module that has whatever is imported from it."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return object


class Net(nn.Module):  # type: ignore[misc]  # torch has no types here
    """A wide, a tall and a square matrix, a table of rows, and a vector."""

    def __init__(self) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(40, 24)
        self.up = nn.Linear(24, 48, bias=False)
        self.down = nn.Linear(48, 24, bias=False)
        self.square = nn.Linear(24, 24)
        self.head = nn.Linear(24, 40, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.square(self.down(torch.tanh(self.up(self.embed_tokens(tokens)))))
        logits = self.head(hidden)
        return nn.functional.cross_entropy(logits[:-1], tokens[1:])


@pytest.fixture
def authors(monkeypatch: pytest.MonkeyPatch) -> Iterator[type]:
    """The class of apollo-torch, which imports bitsandbytes and does not call it here."""
    for name in ("", ".functional", ".optim", ".optim.optimizer"):
        monkeypatch.setitem(sys.modules, f"bitsandbytes{name}", Anything(f"bitsandbytes{name}"))
    from apollo_torch.apollo import AdamW

    yield AdamW
    for name in [name for name in sys.modules if name.startswith("apollo_torch")]:
        del sys.modules[name]


def net() -> Net:
    torch.manual_seed(1)
    return Net()


def loss_of(model: Net, step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(step)
    # Some steps are far steeper than others, so that growth is limited.
    return model(torch.randint(0, 40, (33,), generator=generator)) * (30 if step % 7 == 6 else 1)


# They differ in the order of sums alone, which a step hands on to the next.
CASES = {
    "channel": (OptimizerSettings(learning_rate=1e-2, rank=4, renewal=5, weight_decay=0.01), 40),
    "tensor": (OptimizerSettings(learning_rate=1e-2, rank=4, scaling="tensor", renewal=9), 40),
    "mini": (apollo_mini(1e-3), 40),
    "200 steps": (OptimizerSettings(learning_rate=1e-3, rank=2, scale=4.0), 205),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_what_its_authors_published(case: str, authors: type) -> None:
    settings, steps = CASES[case]
    ours, theirs = net(), net()
    optimizer = InBackwardOptimizer(ours.named_parameters(), settings)
    words = {
        "rank": settings.rank,
        "proj": "random",
        "scale_type": settings.scaling,
        "scale": settings.scale,
        "update_proj_gap": settings.renewal,
        "proj_type": "std",
    }
    named = dict(theirs.named_parameters())
    assert sum(state.low_rank for state in optimizer.states.values()) == 4
    reference = authors(
        [
            {"params": [one]} | (words if optimizer.states[name].low_rank else {})
            for name, one in named.items()
        ],
        lr=settings.learning_rate,
        eps=settings.eps,
        weight_decay=settings.weight_decay,
    )
    for step in range(steps):
        optimizer.backward(loss_of(ours, step))
        loss_of(theirs, step).backward()
        reference.step()
        reference.zero_grad()
        for name, weight in ours.named_parameters():
            difference = (weight - named[name]).norm() / named[name].norm()
            assert difference < 1e-6 * (step + 1), (step, name)


def test_its_state_is_of_the_rank() -> None:
    model = net()
    settings = OptimizerSettings(rank=3)
    optimizer = InBackwardOptimizer(model.named_parameters(), settings)
    optimizer.backward(loss_of(model, 0))
    matrices = {name for name, weight in model.named_parameters() if is_matrix(name, weight)}
    assert len(matrices) == 4
    for name in matrices:
        weight, state = optimizer.weights[name], optimizer.states[name]
        assert set(state.tensors) == {MEAN, SQUARE, NORM}
        assert state.tensors[NORM].numel() == 1
        kept = state.tensors[MEAN].numel() + state.tensors[SQUARE].numel()
        assert kept == 2 * settings.rank * max(weight.shape)


def test_small_matrices_keep_no_more_than_a_projection_would() -> None:
    model = nn.Linear(8, 32, bias=False)
    optimizer = InBackwardOptimizer(model.named_parameters(), OptimizerSettings(rank=64))
    optimizer.backward(model(torch.ones(1, 8)).sum())
    kept = sum(one.numel() for one in optimizer.states["weight"].tensors.values())
    assert kept <= 2 * 64 * 32


@pytest.mark.parametrize(
    "setting",
    [
        {"learning_rate": float("nan")},
        {"learning_rate": -1.0},
        {"beta1": 1.0},
        {"eps": float("inf")},
        {"rank": 0},
        {"renewal": 0},
        {"growth": 0.5},
        {"seed": -1},
    ],
    ids=str,
)
def test_settings_that_none_takes_are_refused(setting: dict[str, float]) -> None:
    with pytest.raises(Refused) as refused:
        OptimizerSettings(**setting)  # type: ignore[arg-type]  # the point
    assert refused.value.reason == "invalid_setting"


def test_a_step_along_zero_does_not_hold_the_next_one_back() -> None:
    """Policies have steps in which nothing has an advantage."""
    moved = []
    for zeros in (0, 1):
        model = net()
        optimizer = InBackwardOptimizer(model.named_parameters(), apollo_mini(1e-3))
        for _ in range(zeros):
            optimizer.backward(loss_of(model, 0) * 0.0)
        before = model.up.weight.detach().clone()
        optimizer.backward(loss_of(model, 0))
        moved.append(float((model.up.weight.detach() - before).norm()))
    assert moved[1] > moved[0] / 10
