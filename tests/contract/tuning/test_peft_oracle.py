"""The engine against transformers with PEFT in fp32, and adapters in PEFT's format."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import PeftModel
from tests.support.factories import tuning_engines as make

from windlass_agent.tuning.engine import TuningEngine
from windlass_agent.tuning.requests.operations import ExportAdapter

CLOSE = 2e-5


def exported(engine: TuningEngine, folder: Path) -> Path:
    make.finished(engine, [engine.submit("run", ExportAdapter(folder))])
    return folder


def opened(engine: TuningEngine, **spec: Any) -> TuningEngine:
    engine.open("run", make.spec(alpha=20.0, **spec))
    make.losses(engine, "run", make.learning(make.example(1), make.example(2, 20)))
    make.stepped(engine, "run")
    return engine


def peft_logprobs(model: Any, draw: int, length: int) -> torch.Tensor:
    row = make.example(draw, length)
    logits = model(input_ids=torch.from_numpy(row.tokens)[None]).logits[0]
    targets = torch.from_numpy(row.inputs["target_tokens"])
    found: torch.Tensor = logits.log_softmax(-1).gather(-1, targets[:, None])[:, 0]
    return found


@pytest.mark.parametrize("targets", [("attention", "mlp", "unembed"), ("mlp",), ("attention",)])
def test_an_exported_adapter_gives_the_same_logprobs(
    tmp_path: Path, targets: tuple[str, ...]
) -> None:
    engine = opened(make.engine(), targets=frozenset(targets))
    model = PeftModel.from_pretrained(make.network(), exported(engine, tmp_path / "adapter"))
    (result,) = make.losses(engine, "run", make.learning(make.example(3, 15)))
    expected = peft_logprobs(model, 3, 15).detach().numpy()
    assert np.abs(result.logprobs[0] - expected).max() < CLOSE
    with model.disable_adapter():
        unadapted = peft_logprobs(model, 3, 15).detach().numpy()
    assert np.abs(result.logprobs[0] - unadapted).max() > 10 * CLOSE


def test_gradients_and_a_step_are_those_of_peft_and_torch(tmp_path: Path) -> None:
    engine = opened(make.engine())
    folder = exported(engine, tmp_path / "adapter")
    model = PeftModel.from_pretrained(make.network(), folder, is_trainable=True)
    make.losses(engine, "run", make.learning(make.example(3, 15), make.example(4, 9)))
    (
        -sum(peft_logprobs(model, draw, length).sum() for draw, length in ((3, 15), (4, 9)))
    ).backward()
    own = make.gradients(engine, "run")
    theirs = {
        name.removeprefix("base_model.model.").replace(".default.weight", ""): parameter.grad
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }
    assert make.difference(theirs, own) < CLOSE
    assert make.difference({name: 1.01 * grad for name, grad in theirs.items()}, own) > CLOSE


def test_adamw_is_that_of_torch() -> None:
    engine = opened(make.engine())
    state = engine.state("run")
    copies = {name: tensor.clone().requires_grad_() for name, tensor in state.weights.items()}
    settings = make.STEP
    optimizer = torch.optim.AdamW(
        copies.values(),
        lr=settings.learning_rate,
        betas=(settings.beta1, settings.beta2),
        eps=settings.eps,
        weight_decay=settings.weight_decay,
    )
    for name, tensor in copies.items():
        optimizer.state[tensor] = {
            "step": torch.tensor(float(state.step)),
            "exp_avg": state.moments[f"{name}.mean"].clone(),
            "exp_avg_sq": state.moments[f"{name}.square"].clone(),
        }
    make.losses(engine, "run", make.learning(make.example(5)))
    for name, gradient in make.gradients(engine, "run").items():
        copies[name].grad = gradient
    optimizer.step()
    before = dict(state.weights)
    make.stepped(engine, "run")
    after = make.weights(engine, "run")
    assert make.difference({name: one.detach() for name, one in copies.items()}, after) < CLOSE
    assert make.difference(before, after) > CLOSE
