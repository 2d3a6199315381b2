"""The tests' environment of vLLM with the plugin, as `pip install ./plugin` there would make it."""

import shutil
import subprocess
from pathlib import Path

from tests.support.engine_training.engine import PLUGIN, installed
from tests.support.environments.vllm_env import vllm_python


def trained_python(folder: Path) -> Path:
    """The interpreter of a copy of the environment, whose files are links; skips without it."""
    home = vllm_python().parent.parent
    subprocess.run(["cp", "-al", str(home), str(folder)], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    installed(packages)
    shutil.copytree(PLUGIN / "windlass_vllm", packages / "windlass_vllm")
    return folder / "bin" / "python"
