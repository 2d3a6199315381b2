"""What a child process may see of the agent's environment: what it needs, and no secret."""

import os
import re

_PASSED = re.compile(
    r"PATH|HOME|USER|LOGNAME|LANG|LC_\w+|TZ|TMPDIR|SHELL|LD_LIBRARY_PATH|DYLD_\w+"
    r"|PYTHONPATH|PYTHONHASHSEED|VIRTUAL_ENV|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE"
    r"|CUDA_\w+|NVIDIA_\w+|NCCL_\w+|PET_\w+|ROCR?_\w+|HIP_\w+|TORCH\w*|PYTORCH_\w+|TRITON_\w+"
    r"|(OMP|MKL|OPENBLAS)_NUM_THREADS|XDG_CACHE_HOME"
    r"|HF_(HOME|HUB_CACHE|HUB_OFFLINE|DATASETS_OFFLINE|DATASETS_CACHE)|TRANSFORMERS_OFFLINE"
)


def child_environment() -> dict[str, str]:
    """The variables of this process that a runner or an engine gets."""
    return {name: value for name, value in os.environ.items() if _PASSED.fullmatch(name)}
