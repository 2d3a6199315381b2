"""Small engines that train, and what to ask them for."""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from windlass_agent.tuning.engine import TuningEngine
from windlass_agent.tuning.network.base import BaseNetwork
from windlass_agent.tuning.requests.limits import TuningLimits
from windlass_agent.tuning.requests.operations import (
    AdapterSpec,
    ComputeLoss,
    Example,
    LossResult,
    RunSpec,
    StepOptimizer,
    StepResult,
)

VOCABULARY, CONTEXT = 96, 64
IDENTITY = "sha256:base"
STEP = StepOptimizer(learning_rate=1e-2)


def network(seed: int = 0) -> LlamaForCausalLM:
    """A Llama of two layers with random weights."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=CONTEXT,
            bos_token_id=None,
            eos_token_id=None,
        )
    )


def base(seed: int = 0) -> BaseNetwork:
    """That network, ready to be trained."""
    return BaseNetwork.fit(network(seed), IDENTITY)


def engine(limits: TuningLimits | None = None, *, seed: int = 0) -> TuningEngine:
    """An engine on a base of its own."""
    return TuningEngine(base(seed), limits or TuningLimits())


def spec(
    project: str = "p", *, rank: int = 4, seed: int = 7, exclusive: bool = False, **adapter: Any
) -> RunSpec:
    """A run of a project."""
    made = AdapterSpec(rank=rank, seed=seed, **adapter)
    return RunSpec(project=project, adapter=made, exclusive=exclusive)


def example(draw: int, length: int = 12) -> Example:
    """A sequence of random tokens, each to be predicted."""
    tokens = np.random.default_rng(draw).integers(0, VOCABULARY, length + 1)
    return Example(
        tokens=tokens[:-1],
        inputs={"target_tokens": tokens[1:], "weights": np.ones(length, np.float32)},
    )


def policy_example(draw: int, length: int = 12) -> Example:
    """A sequence with what it was sampled with, of which the first tokens are the prompt's."""
    source = np.random.default_rng(draw)
    plain = example(draw, length)
    advantages = source.normal(size=length).astype(np.float32)
    advantages[:3] = 0
    sampled = (-4.6 + source.normal(scale=0.2, size=length)).astype(np.float32)
    return Example(
        tokens=plain.tokens,
        inputs={
            "target_tokens": plain.inputs["target_tokens"],
            "logprobs": sampled,
            "advantages": advantages,
        },
    )


def learning(*examples: Example, loss: str = "cross_entropy", **settings: float) -> ComputeLoss:
    """A loss of examples, with gradients."""
    return ComputeLoss(examples=examples, loss=loss, settings=settings)


def drive(trained: TuningEngine) -> None:
    """Lets an engine do all that waits."""
    while trained.advance():
        pass


def finished(trained: TuningEngine, futures: Sequence["Future[Any]"]) -> list[Any]:
    """Results of what was submitted, once the engine has done it."""
    drive(trained)
    return [future.result(timeout=0) for future in futures]


def losses(trained: TuningEngine, run: str, *operations: ComputeLoss) -> list[LossResult]:
    """Results of losses of a run."""
    return finished(trained, [trained.submit(run, operation) for operation in operations])


def stepped(trained: TuningEngine, run: str) -> StepResult:
    """One step of a run."""
    (result,) = finished(trained, [trained.submit(run, STEP)])
    assert isinstance(result, StepResult)
    return result


def weights(trained: TuningEngine, run: str) -> dict[str, torch.Tensor]:
    """The matrices of a run as they are now."""
    return dict(trained.state(run).weights)


def gradients(trained: TuningEngine, run: str) -> dict[str, torch.Tensor]:
    """Gradients of a run that are not yet applied."""
    return dict(trained.state(run).gradients)


def same_bits(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    """True where two sets of tensors are equal to the bit."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def difference(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    """The largest difference of two sets of tensors, relative to the norm of each tensor."""
    assert one.keys() == other.keys()
    return max(
        float((one[name] - other[name]).norm() / one[name].norm().clamp(min=1e-12)) for name in one
    )
