"""Formulas of the losses: what each token gains, of which a loss is minus the sum."""

from collections.abc import Callable, Mapping

import torch

Inputs = Mapping[str, torch.Tensor]
Settings = Mapping[str, float]


def target_logprobs(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Returns log-probabilities of targets ([rows] or [rows, n]) by the rows of `logits`."""
    wanted = targets if targets.ndim == 2 else targets[:, None]
    found = logits.gather(-1, wanted) - logits.logsumexp(-1, keepdim=True)
    return found if targets.ndim == 2 else found[:, 0]


def sequence_loss(
    loss: str, logprobs: torch.Tensor, inputs: Inputs, settings: Settings
) -> torch.Tensor:
    """Returns the loss of one sequence, without the tokens that a mask leaves out."""
    gains = _GAINS[loss](logprobs, inputs, settings)
    mask = inputs.get("mask")
    return -(gains if mask is None else gains * mask).sum()


def _cross_entropy(logprobs: torch.Tensor, inputs: Inputs, _: Settings) -> torch.Tensor:
    return inputs["weights"] * logprobs


def _importance_sampling(logprobs: torch.Tensor, inputs: Inputs, _: Settings) -> torch.Tensor:
    return _ratio(logprobs, inputs) * inputs["advantages"]


def _ppo(logprobs: torch.Tensor, inputs: Inputs, settings: Settings) -> torch.Tensor:
    return _pessimistic(_ratio(logprobs, inputs), inputs, settings)


def _cispo(logprobs: torch.Tensor, inputs: Inputs, settings: Settings) -> torch.Tensor:
    held = _clipped(_ratio(logprobs, inputs), settings).detach()
    return held * logprobs * inputs["advantages"]


def _dro(logprobs: torch.Tensor, inputs: Inputs, settings: Settings) -> torch.Tensor:
    drift = logprobs - inputs["logprobs"]
    return logprobs * inputs["advantages"] - 0.5 * settings["beta"] * drift.square()


def _stable_reinforce(logprobs: torch.Tensor, inputs: Inputs, settings: Settings) -> torch.Tensor:
    held = _ratio(logprobs, inputs).clamp(max=settings["truncation"]).detach()
    return held * logprobs * inputs["advantages"]


def _gspo(logprobs: torch.Tensor, inputs: Inputs, settings: Settings) -> torch.Tensor:
    """Takes one ratio for the sequence (its geometric mean), whose gradient goes by tokens."""
    within = inputs.get("sequence_ratio_mask")
    if within is None:
        within = (inputs["advantages"] != 0).float()
    drift = ((logprobs - inputs["logprobs"]) * within).sum() / within.sum().clamp(min=1.0)
    ratios = drift.detach().exp() * (logprobs - logprobs.detach()).exp()
    return _pessimistic(ratios, inputs, settings) * within


def _ratio(logprobs: torch.Tensor, inputs: Inputs) -> torch.Tensor:
    return (logprobs - inputs["logprobs"]).exp()


def _pessimistic(ratios: torch.Tensor, inputs: Inputs, settings: Settings) -> torch.Tensor:
    advantages = inputs["advantages"]
    return torch.minimum(ratios * advantages, _clipped(ratios, settings) * advantages)


def _clipped(ratios: torch.Tensor, settings: Settings) -> torch.Tensor:
    return ratios.clamp(settings["clip_low_threshold"], settings["clip_high_threshold"])


_GAINS: dict[str, Callable[[torch.Tensor, Inputs, Settings], torch.Tensor]] = {
    "cross_entropy": _cross_entropy,
    "importance_sampling": _importance_sampling,
    "ppo": _ppo,
    "cispo": _cispo,
    "dro": _dro,
    "stable_reinforce": _stable_reinforce,
    "gspo": _gspo,
}
