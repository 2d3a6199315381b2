"""A held-out set: its loss, and how far the model is from the one that a job began with."""

from dataclasses import dataclass
from typing import Any

import torch

from windlass_vllm.messages import Guard
from windlass_vllm.training.loss import continuation_logits


@dataclass(frozen=True)
class HeldOutMeasure:
    """Means over the tokens of all continuations, by their weights."""

    loss: float
    kl: float
    """Of the model's distributions from those at the start."""


class HeldOutSet:
    """The samples of a guard, with the distributions of the model as it is now."""

    def __init__(self, guard: Guard, model: Any, batch: int) -> None:
        self._guard, self._batch = guard, batch
        self._start: list[torch.Tensor] = []
        for logits, _, shares in self._passes(model):
            self._start.append(logits.log_softmax(-1)[shares > 0].cpu())

    def measure(self, model: Any) -> HeldOutMeasure:
        """Returns the measures of a model."""
        loss, kl, total = 0.0, 0.0, 0.0
        for start, (logits, targets, shares) in zip(self._start, self._passes(model), strict=True):
            chosen = shares > 0
            now, weights = logits.log_softmax(-1)[chosen], shares[chosen]
            before = start.to(now.device)
            said = now.gather(1, targets[chosen][:, None])[:, 0]
            loss -= float((said * weights).sum())
            kl += float(((before.exp() * (before - now)).sum(-1) * weights).sum())
            total += float(weights.sum())
        return HeldOutMeasure(loss / total, kl / total)

    def fault(self, found: HeldOutMeasure) -> str:
        """Returns which limit a measure passes; empty for none. What is no number passes all."""
        limits = {"loss": self._guard.max_loss, "kl": self._guard.max_kl}
        for name, most in limits.items():
            value = getattr(found, name)
            if value != value or value == float("inf"):
                return f"the held-out {name} is no number"
            if most is not None and value > most:
                return f"the held-out {name} of {value:.4g} exceeds {most:g}"
        return ""

    def _passes(self, model: Any) -> Any:
        samples, device = self._guard.samples, model.device.type
        model.eval()
        try:
            with torch.no_grad():
                for first in range(0, len(samples), self._batch):
                    yield continuation_logits(model, samples[first : first + self._batch], device)
        finally:
            model.train()
