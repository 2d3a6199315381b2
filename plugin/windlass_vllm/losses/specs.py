"""Inputs and settings of each loss."""

from collections.abc import Mapping
from dataclasses import dataclass, field

TARGETS, LOGPROBS = "target_tokens", "logprobs"
_CLIPS = {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}


@dataclass(frozen=True)
class LossInputs:
    """Inputs beside the targets, and settings with their defaults."""

    needs: tuple[str, ...]
    takes: tuple[str, ...] = ()
    settings: Mapping[str, float] = field(default_factory=dict)
    ranked: bool = False
    """Several targets of one position, each with a weight."""


_POLICY = (LOGPROBS, "advantages")
SPECS = {
    "cross_entropy": LossInputs(("weights",), ranked=True),
    "importance_sampling": LossInputs(_POLICY, ("mask",)),
    "ppo": LossInputs(_POLICY, ("mask",), _CLIPS),
    "cispo": LossInputs(_POLICY, ("mask",), _CLIPS),
    "dro": LossInputs(_POLICY, ("mask",), {"beta": 0.05}),
    "stable_reinforce": LossInputs(_POLICY, ("mask",), {"truncation": 2.0}),
    "gspo": LossInputs(_POLICY, ("mask", "sequence_ratio_mask"), _CLIPS),
}
