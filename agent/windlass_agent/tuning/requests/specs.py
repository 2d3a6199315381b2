"""Bounds on what a run may be."""

import math

from windlass_agent.tuning.requests.limits import TuningLimits
from windlass_agent.tuning.requests.operations import ALL_TARGETS, RunSpec
from windlass_agent.tuning.requests.refusal import TuningRefused

_SEEDS = 2**63


def check_run(spec: RunSpec, limits: TuningLimits) -> None:
    """Raises TuningRefused for a run that the engine does not take."""
    adapter = spec.adapter
    if not 1 <= adapter.rank <= limits.rank:
        message = f"the rank is {adapter.rank}, not 1 to {limits.rank}"
        raise TuningRefused("rank_out_of_bounds", message)
    if not adapter.targets or not adapter.targets <= ALL_TARGETS:
        raise TuningRefused("no_targets", f"targets are some of {sorted(ALL_TARGETS)}")
    if not (math.isfinite(adapter.alpha) and adapter.alpha > 0):
        raise TuningRefused("invalid_setting", "alpha is a number above 0")
    if not -_SEEDS <= adapter.seed < _SEEDS:
        raise TuningRefused("invalid_setting", "the seed has 64 bits at most")
    if spec.optimizer not in ("adamw", "dimuon"):
        raise TuningRefused("unknown_optimizer", "the optimizer is adamw or dimuon")
    if not (math.isfinite(spec.weight) and spec.weight > 0):
        raise TuningRefused("invalid_setting", "the weight is a number above 0")
