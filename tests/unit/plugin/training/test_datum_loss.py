"""Losses of datums by a model, with logits of no more positions than can have one."""

from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from windlass_vllm.losses.datums import (
    DatumChunk,
    DatumTensor,
    Float32Tensor,
    Int64Tensor,
    ModelInput,
    TinkerDatum,
)
from windlass_vllm.losses.formulas import sequence_loss, target_logprobs
from windlass_vllm.losses.specs import SPECS
from windlass_vllm.messages import TokenSample
from windlass_vllm.training.datum_loss import datum_loss
from windlass_vllm.training.loss import continuation_loss

pytestmark = pytest.mark.torch

SAMPLED = (-3.0, -2.5, -4.0, -3.5, -3.0, -2.0)
SCALES = (0.0, 0.0, 1.5, -0.5, 0.0, 2.0)


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=32, **sizes, **heads)).train()


def datum(loss: str, length: int = 6) -> TinkerDatum:
    """A sequence in two chunks, the first two of whose positions have no factor but 0."""
    ids = tuple(range(3, 3 + length))
    given: dict[str, Any] = {"target_tokens": Int64Tensor(data=tuple(one + 1 for one in ids))}
    for name in (*SPECS[loss].needs, *SPECS[loss].takes):
        numbers = SAMPLED if name == "logprobs" else SCALES
        ones = tuple(float(one != 0) for one in SCALES)
        given[name] = Float32Tensor(data=(ones if "mask" in name else numbers)[:length])
    return TinkerDatum(ModelInput((DatumChunk(ids[:2]), DatumChunk(ids[2:]))), given)


def gradient(model: Any, loss: torch.Tensor) -> torch.Tensor:
    every = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    return torch.cat([one.flatten() for one in every if one is not None])


@pytest.mark.parametrize("loss", SPECS)
def test_a_step_is_the_sum_of_its_sequences_each_by_all_of_its_positions(
    model: Any, loss: str
) -> None:
    datums, settings, wanted = [datum(loss), datum(loss, 4)], dict(SPECS[loss].settings), []
    for one in datums:
        inputs = {name: torch.tensor(given.data) for name, given in one.loss_fn_inputs.items()}
        logits = model(input_ids=torch.tensor([one.tokens])).logits[0]
        logprobs = target_logprobs(logits, inputs["target_tokens"])
        wanted.append(sequence_loss(loss, logprobs, inputs, settings))
    found, expected = datum_loss(model, datums, loss, settings, "cpu"), torch.stack(wanted).sum()
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)
    assert torch.allclose(gradient(model, found), gradient(model, expected), atol=1e-6)


def test_positions_before_the_first_that_counts_have_no_logits(model: Any) -> None:
    lengths = []
    hook = model.lm_head.register_forward_hook(lambda *seen: lengths.append(seen[-1].shape[1]))
    for loss in ("cross_entropy", "gspo", "dro"):
        datum_loss(model, [datum(loss)], loss, dict(SPECS[loss].settings), "cpu")
    hook.remove()
    assert lengths == [4, 4, 6]


def test_weights_of_one_are_a_sample_whose_tokens_are_summed(model: Any) -> None:
    """The other form of a request has the mean of the same."""
    given: dict[str, DatumTensor] = {
        "target_tokens": Int64Tensor(data=(4, 5, 6, 7)),
        "weights": Float32Tensor(data=(0.0, 1.0, 1.0, 1.0)),
    }
    one = TinkerDatum(ModelInput((DatumChunk((3, 4, 5, 6)),)), given)
    found = datum_loss(model, [one], "cross_entropy", {}, "cpu")
    sample = TokenSample((3, 4), (5, 6, 7))
    assert found.item() == pytest.approx(3 * continuation_loss(model, [sample], "cpu").item())


def test_several_targets_of_a_position_have_their_weights(model: Any) -> None:
    given: dict[str, DatumTensor] = {
        "target_tokens": Int64Tensor(data=(4, 5, 6, 7), shape=(2, 2)),
        "weights": Float32Tensor(data=(0.25, 0.75, 0.0, 1.0), shape=(2, 2)),
    }
    one = TinkerDatum(ModelInput((DatumChunk((3, 4)),)), given)
    logprobs = model(input_ids=torch.tensor([[3, 4]])).logits[0].log_softmax(-1)
    expected = -(0.25 * logprobs[0, 4] + 0.75 * logprobs[0, 5] + logprobs[1, 7])
    found = datum_loss(model, [one], "cross_entropy", {}, "cpu")
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)
