"""Formulas of the losses, each the sum over a sequence's tokens."""

from collections.abc import Callable, Mapping

import torch

Inputs = Mapping[str, torch.Tensor]
Settings = Mapping[str, float]
Loss = Callable[[torch.Tensor, Inputs, Settings], torch.Tensor]


def target_logprobs(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Log-probabilities of targets ([rows] or [rows, n]) by the rows of `logits`."""
    wanted = targets if targets.ndim == 2 else targets[:, None]
    found = logits.gather(-1, wanted) - logits.logsumexp(-1, keepdim=True)
    return found if targets.ndim == 2 else found[:, 0]


def ratio(logprobs: torch.Tensor, inputs: Inputs) -> torch.Tensor:
    """Returns how much likelier each token is now than when it was sampled."""
    return (logprobs - inputs["logprobs"]).exp()


def _cross_entropy(logprobs: torch.Tensor, inputs: Inputs, _: Settings) -> torch.Tensor:
    return -(inputs["weights"] * logprobs).sum()


def _importance_sampling(logprobs: torch.Tensor, inputs: Inputs, _: Settings) -> torch.Tensor:
    return -_masked(ratio(logprobs, inputs) * inputs["advantages"], inputs).sum()


def _ppo(logprobs: torch.Tensor, inputs: Inputs, settings: Settings) -> torch.Tensor:
    return -_masked(_pessimistic(ratio(logprobs, inputs), inputs, settings), inputs).sum()


def _cispo(logprobs: torch.Tensor, inputs: Inputs, settings: Settings) -> torch.Tensor:
    held = _clipped(ratio(logprobs, inputs), settings).detach()
    return -_masked(held * logprobs * inputs["advantages"], inputs).sum()


def _dro(logprobs: torch.Tensor, inputs: Inputs, settings: Settings) -> torch.Tensor:
    drift = logprobs - inputs["logprobs"]
    value = logprobs * inputs["advantages"] - 0.5 * settings["beta"] * drift.square()
    return -_masked(value, inputs).sum()


def _stable_reinforce(logprobs: torch.Tensor, inputs: Inputs, settings: Settings) -> torch.Tensor:
    held = ratio(logprobs, inputs).clamp(max=settings["truncation"]).detach()
    return -_masked(held * logprobs * inputs["advantages"], inputs).sum()


def _gspo(logprobs: torch.Tensor, inputs: Inputs, settings: Settings) -> torch.Tensor:
    """Takes one ratio for the sequence (its geometric mean), whose gradient goes by tokens."""
    within = inputs.get("sequence_ratio_mask")
    if within is None:
        within = (inputs["advantages"] != 0).float()
    drift = ((logprobs - inputs["logprobs"]) * within).sum() / within.sum().clamp(min=1.0)
    ratios = drift.detach().exp() * (logprobs - logprobs.detach()).exp()
    return -_masked(_pessimistic(ratios, inputs, settings) * within, inputs).sum()


def _pessimistic(ratios: torch.Tensor, inputs: Inputs, settings: Settings) -> torch.Tensor:
    advantages = inputs["advantages"]
    return torch.minimum(ratios * advantages, _clipped(ratios, settings) * advantages)


def _clipped(ratios: torch.Tensor, settings: Settings) -> torch.Tensor:
    return ratios.clamp(settings["clip_low_threshold"], settings["clip_high_threshold"])


def _masked(values: torch.Tensor, inputs: Inputs) -> torch.Tensor:
    mask = inputs.get("mask")
    return values if mask is None else values * mask


FORMULAS: dict[str, Loss] = {
    "cross_entropy": _cross_entropy,
    "importance_sampling": _importance_sampling,
    "ppo": _ppo,
    "cispo": _cispo,
    "dro": _dro,
    "stable_reinforce": _stable_reinforce,
    "gspo": _gspo,
}
