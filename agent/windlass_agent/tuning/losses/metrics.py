"""Metrics of an operation: sums and means that do not depend on the order of its examples."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from windlass_agent.tuning.requests.operations import Example

Floats = npt.NDArray[np.float32]


def metrics(
    losses: Sequence[float],
    logprobs: Sequence[Floats],
    examples: Sequence[Example],
    settings: Mapping[str, float],
) -> dict[str, float]:
    """Metrics named `name:reduction`; one that has no number is left out."""
    found = {
        "loss:sum": math.fsum(losses),
        "tokens:sum": float(sum(len(example.tokens) for example in examples)),
    }
    drifts = [
        np.subtract(own, example.inputs["logprobs"], dtype=np.float64)[
            example.inputs["advantages"] != 0
        ]
        for own, example in zip(logprobs, examples, strict=True)
        if _is_policy(example, own)
    ]
    drift = np.sort(np.concatenate(drifts)) if drifts else np.zeros(0)
    if drift.size:
        ratios = np.exp(np.minimum(drift, 700.0))
        found |= {
            "kl_sampler:mean": -math.fsum(drift) / drift.size,
            "ratio:mean": math.fsum(ratios) / drift.size,
            "ratio:min": float(ratios.min()),
            "ratio:max": float(ratios.max()),
        }
        if "clip_low_threshold" in settings:
            low, high = settings["clip_low_threshold"], settings["clip_high_threshold"]
            found["clipped:mean"] = float(((ratios < low) | (ratios > high)).mean())
    return {name: value for name, value in found.items() if math.isfinite(value)}


def _is_policy(example: Example, own: Floats) -> bool:
    both = [example.inputs.get(name) for name in ("logprobs", "advantages")]
    return all(values is not None and values.shape == own.shape for values in both)


def own_metrics(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Sums and means of what a tenant's own loss reports of each example, by its suffix."""
    names = {name for one in found for name in one}
    return {
        name: math.fsum(one[name] for one in found) / (len(found) if name.endswith(":mean") else 1)
        for name in sorted(names)
        if all(math.isfinite(one.get(name, math.nan)) for one in found)
    }
