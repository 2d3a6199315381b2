"""Bounds of one engine."""

from dataclasses import dataclass

from windlass.tuning_api.losses.specs import MOST_TARGETS
from windlass.tuning_api.trainers.records import MAX_DATUMS


@dataclass(frozen=True, kw_only=True)
class TuningLimits:
    """Bounds on what tenants may ask for, and the size of a pass."""

    runs: int = 256
    resident_runs: int = 64
    """Runs whose tensors lie on the device, and so those of one pass; others are in host memory."""
    rank: int = 128
    context: int | None = None
    """Tokens of a sequence, where fewer than the model's own."""
    pass_tokens: int = 16_384
    queued_operations: int = 20_000
    """Operations of one run that wait."""
    examples: int = MAX_DATUMS
    targets: int = MOST_TARGETS
    """Target tokens of one position."""
    held_snapshots: int = 32
    """Exported adapters that are kept in memory for sampling."""
    samples: int = 64
    """Continuations of one prompt."""
    sampled_tokens: int = 32_768
    ranked_logprobs: int = 64
    """Alternatives that are reported of one position."""
    stops: int = 32
    stop_length: int = 256
    """Characters of a stop."""
    queued_prompts: int = 4096
