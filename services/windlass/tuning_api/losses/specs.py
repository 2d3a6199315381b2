"""Inputs and settings of each loss that is no tenant's own."""

from collections.abc import Mapping
from dataclasses import dataclass, field

TARGETS = "target_tokens"
MOST_TARGETS = 32
"""Most target tokens of one position."""
_CLIPS = {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}


@dataclass(frozen=True)
class LossSpec:
    """Inputs beside the targets, and settings with their defaults."""

    needs: tuple[str, ...]
    takes: tuple[str, ...] = ()
    settings: Mapping[str, float] = field(default_factory=dict)
    ranked: bool = False
    """Several targets of one position, each with a weight."""


_POLICY = ("logprobs", "advantages")
SPECS = {
    "cross_entropy": LossSpec(("weights",), ranked=True),
    "importance_sampling": LossSpec(_POLICY, ("mask",)),
    "ppo": LossSpec(_POLICY, ("mask",), _CLIPS),
    "cispo": LossSpec(_POLICY, ("mask",), _CLIPS),
    "dro": LossSpec(_POLICY, ("mask",), {"beta": 0.05}),
    "stable_reinforce": LossSpec(_POLICY, ("mask",), {"truncation": 2.0}),
    "gspo": LossSpec(_POLICY, ("mask", "sequence_ratio_mask"), _CLIPS),
}
