"""Model FLOPs utilization (MFU) of a training."""

import re
from collections.abc import Sequence

# Dense BF16 (FP16 before Ampere) operations per second, by the makers' data sheets. The first
# whose words are all in the device's name holds.
_PEAKS: Sequence[tuple[str, float]] = (
    ("B200", 2250e12),
    ("H200 NVL", 835.5e12),
    ("H200", 989.4e12),
    ("H100 PCIe", 756e12),
    ("H100 NVL", 835.5e12),
    ("H100", 989.4e12),
    ("H20", 148e12),
    ("A100", 312e12),
    ("A40", 149.7e12),
    ("A30", 165e12),
    ("L40S", 362e12),
    ("L40", 181e12),
    ("L4", 121e12),
    ("V100", 125e12),
    ("T4", 65e12),
    ("MI300X", 1307.4e12),
)


def peak_flops(device: str) -> float | None:
    """Operations per second of a device by the name that its driver gives.

    None for one that is not known here, and for a slice of one (MIG).
    """
    words = set(re.split(r"[\s-]+", device))
    if "MIG" in words:
        return None
    return next((peak for name, peak in _PEAKS if words.issuperset(name.split())), None)


def flops_per_token(parameters: int, trained: int) -> int:
    """Operations that a token costs a model that multiplies by `parameters` of its weights.

    2 per weight forward, 2 backward to the layer before, and 2 more for each weight that is
    trained. Attention's own, recomputed activations and a reference model are not counted, so
    that what is made of it errs to the low side.
    """
    return 4 * parameters + 2 * trained
