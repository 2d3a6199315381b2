"""Passes and single steps that go on from each other, on weights that no engine serves."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tests.support.engine_training.seen import seen_engine
from tests.unit.plugin.training.test_running import OpenFence, is_same

from windlass_vllm.losses.datums import (
    DatumChunk,
    Float32Tensor,
    Int64Tensor,
    ModelInput,
    TinkerDatum,
)
from windlass_vllm.messages import JobEnded, Mode, PassComputed, Train
from windlass_vllm.optimizers.settings import OptimizerSettings
from windlass_vllm.training.job_chain import JobChain
from windlass_vllm.training.saving import put_back, save
from windlass_vllm.training.seen_engine import SeenEngine
from windlass_vllm.weights.private_folder import OwnFolder

pytestmark = pytest.mark.torch

ADAM = OptimizerSettings(kind="adamw", learning_rate=0.01, beta2=0.95, eps=1e-12)


def datum(*tokens: int) -> TinkerDatum:
    """A sequence that has a loss from its second token on."""
    weights = [0.0, *(1.0 for _ in tokens[2:])]
    inputs: dict[str, Any] = {"target_tokens": Int64Tensor(data=tokens[1:])}
    inputs |= {"weights": Float32Tensor(data=tuple(weights))}
    return TinkerDatum(ModelInput((DatumChunk(tokens[:-1]),)), inputs)


SGD = OptimizerSettings(kind="sgd", learning_rate=0.1)
DATUMS = (datum(1, 2, 3, 4), datum(5, 6, 7), datum(8, 9, 10, 11, 12))


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[SeenEngine]:
    own = OwnFolder(tmp_path)
    torch.manual_seed(0)
    yield seen_engine(own, layers=1, hidden=32)
    own.close()


def job(name: str, **words: Any) -> Train:
    """A pass, unless the words make it a step."""
    usual: dict[str, Any] = {"datums": DATUMS, "loss": "cross_entropy", "number": 1}
    usual["forward_only"] = "one_step" not in words
    usual["optimizer"] = ADAM
    return Train(job=name, samples=(), epochs=1, batch=1, **(usual | words))


def step(name: str, continues: str, **words: Any) -> Train:
    return job(name, continues=continues, one_step=True, **words)


def test_a_pass_tells_each_target_and_changes_nothing(engine: SeenEngine) -> None:
    before, caller = engine.copied(), OpenFence()
    assert JobChain(engine).run(job("f"), caller) == JobEnded("f", "succeeded", 0)
    (said,) = caller.said
    assert isinstance(said, PassComputed)
    found = np.frombuffer(said.outputs, "<f4")
    logprobs = []
    for one in DATUMS:
        logits = engine.model(torch.tensor([one.tokens])).logits[0].log_softmax(-1)
        targets = torch.tensor(one.loss_fn_inputs["target_tokens"].data)
        logprobs.append(logits.gather(-1, targets[:, None])[:, 0].detach())
    losses = [-float(one[1:].sum()) for one in logprobs]
    assert found == pytest.approx([*torch.cat(logprobs).tolist(), *losses], abs=1e-5)
    assert is_same(engine, dict(before))


@pytest.mark.parametrize("mode", ["hogwild", "fenced"])
def test_steps_are_those_of_torch_with_all_gradients_at_once(
    engine: SeenEngine, mode: Mode
) -> None:
    caller, chain = OpenFence(), JobChain(engine)
    with torch.no_grad():
        expected = {name: one.clone() for name, one in engine.model.named_parameters()}
    twin = {name: torch.nn.Parameter(one) for name, one in expected.items()}
    optimizer = torch.optim.SGD(twin.values(), lr=0.1)
    assert chain.run(job("f", mode=mode), caller).state == "succeeded"
    before = "f"
    for number in range(3):
        optimizer.zero_grad()
        for one in DATUMS:
            ids = torch.tensor([one.tokens])
            logits = torch.func.functional_call(engine.model, twin, (ids,)).logits[0]
            targets = torch.tensor(one.loss_fn_inputs["target_tokens"].data)
            torch.nn.functional.cross_entropy(logits[1:], targets[1:], reduction="sum").backward()
        optimizer.step()
        own = step(f"s{number}", before, mode=mode, optimizer=SGD)
        ended = chain.run(own, caller)
        assert ended == JobEnded(f"s{number}", "succeeded", 1)
        before = f"s{number}"
        for name, one in engine.model.named_parameters():
            assert torch.allclose(one, twin[name], atol=1e-5), name
    assert caller.passed == (3 if mode == "fenced" else 0)


def test_a_norm_is_clipped(engine: SeenEngine) -> None:
    """One step of SGD moves the weights by no more than the rate times the norm."""
    before, chain = engine.copied(), JobChain(engine)
    one = step("s", "", clip_norm=0.5, optimizer=SGD)
    assert chain.run(one, OpenFence()).state == "succeeded"
    moved = sum(float((one - before[name]).square().sum()) for name, one in engine.live.items())
    assert moved**0.5 == pytest.approx(0.05, abs=1e-4)


def test_what_moves_the_weights_breaks_a_chain(engine: SeenEngine, tmp_path: Path) -> None:
    caller, chain = OpenFence(), JobChain(engine)
    chain.run(job("f"), caller)
    # Whatever comes first begins a chain, which another's job does not go on from.
    for name in ("g", "another"):
        lost = chain.run(step("s", name), caller)
        assert (lost.state, lost.reason) == ("failed", "state_lost")
    assert chain.run(step("s", "f"), caller).state == "succeeded"
    chain.break_off()
    assert chain.run(job("after", continues="s"), caller).reason == "state_lost"
    # A new worker knows no chain.
    assert JobChain(engine).run(step("t", "s"), caller).reason == "state_lost"


def test_a_loss_that_is_no_number_leaves_the_chain_as_it_was(engine: SeenEngine) -> None:
    caller, chain = OpenFence(), JobChain(engine)
    chain.run(job("f"), caller)
    before = dict(engine.copied())
    inputs = DATUMS[0].loss_fn_inputs | {"weights": Float32Tensor(data=(1e38,) * 3)}
    bad = (msgspec.structs.replace(DATUMS[0], loss_fn_inputs=inputs),) * 3
    for one in (job("g", continues="f", datums=bad), step("s", "f", datums=bad)):
        ended = chain.run(one, caller)
        assert ended.reason in ("non_finite_loss", "non_finite_gradient"), ended
    assert is_same(engine, before)
    assert chain.run(step("t", "f"), caller).state == "succeeded"


def test_a_chain_goes_on_from_a_version_with_its_optimizer(
    engine: SeenEngine, tmp_path: Path
) -> None:
    """The steps are those of a worker that was never lost."""
    model, run, caller = tmp_path / "model", tmp_path / "run", OpenFence()
    model.mkdir()
    save_file({name: one.contiguous() for name, one in engine.model.state_dict().items()},
              model / "model.safetensors")  # fmt: skip
    first = JobChain(engine)
    first.run(job("f"), caller)
    first.run(step("s", "f"), caller)
    save(engine, model, run, **first.kept._asdict())
    assert first.run(step("t", "s"), caller).state == "succeeded"
    expected = dict(engine.copied())
    second = JobChain(engine)
    put_back(engine, run, lambda: caller.fence("put-back"))
    second.resume(run)
    assert second.run(step("t", "s"), caller).state == "succeeded"
    assert is_same(engine, expected)
