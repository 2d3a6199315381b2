"""The losses of datums: of each sequence by its formula, and the sum of them."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from windlass_vllm.losses.datums import DatumTensor, Float32Tensor, TinkerDatum, shape_of
from windlass_vllm.losses.formulas import sequence_loss, target_logprobs
from windlass_vllm.losses.specs import LOGPROBS, TARGETS
from windlass_vllm.training.loss import padded


def datum_loss(
    model: Any, datums: Sequence[TinkerDatum], loss: str, settings: Mapping[str, float], device: str
) -> torch.Tensor:
    """Returns the sum of the losses of some sequences."""
    every = sequence_losses(model, datums, loss, settings, device)
    return torch.stack([value for _, value in every]).sum()


def sequence_losses(
    model: Any,
    datums: Sequence[TinkerDatum],
    loss: str,
    settings: Mapping[str, float],
    device: str,
    *,
    whole: bool = False,
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Returns the log-probabilities of each sequence's targets, and its loss.

    Unless they are to be whole, those without a loss at the beginning are left out.
    """
    ids = padded([one.tokens for one in datums], device)
    every = [_tensors(one, device) for one in datums]
    # Logits of prompts would be the largest of all activations.
    first = 0 if whole else min(_silent(inputs, loss) for inputs in every)
    kept = ids.shape[1] - first
    logits = model(input_ids=ids, use_cache=False, logits_to_keep=kept).logits.float()
    found = []
    for own, inputs in zip(logits, every, strict=True):
        heard = {name: one[first:] for name, one in inputs.items()}
        targets = heard[TARGETS]
        logprobs = target_logprobs(own[: len(targets)], targets)
        found.append((logprobs, sequence_loss(loss, logprobs, heard, settings)))
    return found


def _silent(inputs: Mapping[str, torch.Tensor], loss: str) -> int:
    """Returns how many positions at the beginning have no loss, since their factors are 0."""
    if loss == "dro":
        return 0
    factors = [one for name, one in inputs.items() if name not in (TARGETS, LOGPROBS)]
    loud = torch.stack([one.reshape(len(one), -1).any(-1) for one in factors]).any(0)
    # All are computed where none has a loss, so that there is a gradient, of zero.
    return int(loud.int().argmax())


def _tensors(datum: TinkerDatum, device: str) -> dict[str, torch.Tensor]:
    return {name: _tensor(one, device) for name, one in datum.loss_fn_inputs.items()}


def _tensor(given: DatumTensor, device: str) -> torch.Tensor:
    kind = torch.float32 if isinstance(given, Float32Tensor) else torch.int64
    return torch.tensor(given.data, dtype=kind, device=device).reshape(shape_of(given))
