"""Filter of a child process's environment: only what it needs, and no secrets."""

import os
import re

_PASSED = re.compile(
    r"PATH|HOME|USER|LOGNAME|LANG|LC_\w+|TZ|TMPDIR|SHELL|LD_LIBRARY_PATH|DYLD_\w+"
    r"|PYTHONPATH|PYTHONHASHSEED|VIRTUAL_ENV|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE"
    r"|CUDA_\w+|NVIDIA_\w+|NCCL_\w+|PET_\w+|ROCR?_\w+|HIP_\w+|TORCH\w*|PYTORCH_\w+|TRITON_\w+"
    r"|(OMP|MKL|OPENBLAS)_NUM_THREADS|XDG_CACHE_HOME"
    r"|HF_(HOME|HUB_CACHE|HUB_OFFLINE|DATASETS_OFFLINE|DATASETS_CACHE)|TRANSFORMERS_OFFLINE"
)


# Within walls there is one folder to write to, in memory, and no user of a name.
_WITHIN = {"HOME": "/tmp", "TMPDIR": "/tmp", "USER": "windlass", "LOGNAME": "windlass"}  # noqa: S108
_WITHOUT = frozenset({"SHELL", "XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "HF_DATASETS_CACHE"})


def child_environment(*, confined: bool = False) -> dict[str, str]:
    """The variables of this process that a runner or an engine gets."""
    found = {name: value for name, value in os.environ.items() if _PASSED.fullmatch(name)}
    if not confined:
        return found
    return {name: value for name, value in found.items() if name not in _WITHOUT} | _WITHIN
