"""An environment with TorchTune beside the one that runs the tests, made in seconds.

PEFT refuses the torchao that TorchTune needs, so they cannot share one. All that both have, torch
first of all, is taken from the tests' own.
"""

import site
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from tests.support.environments import made_once, required

# The extra `torchtune`, less what the tests' environment has.
PINS = (
    "torchtune==0.6.1",
    "torchao==0.15.0",
    "torchdata==0.11.0",
    "omegaconf==2.3.0",
    "antlr4-python3-runtime==4.9.3",
    "blobfile==3.3.0",
    "kagglehub==1.0.3",
    "sentencepiece==0.2.3",
    "tiktoken==0.14.0",
)
_SECONDS = 240


def torchtune_python() -> Path:
    """The interpreter; the test is skipped where the packages cannot be had."""
    try:
        return environment()
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        required.lacking(f"TorchTune and its packages cannot be installed: {error.stderr!r}")


def environment() -> Path:
    """The interpreter of the environment, made once."""
    made_of = "\n".join([sys.version, sysconfig.get_path("purelib"), *PINS])
    return made_once.once("torchtune-env", made_of, _make) / "bin" / "python"


def _make(home: Path) -> None:
    venv.create(home, with_pip=False, symlinks=True)
    python = home / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--quiet"]
    subprocess.run([*pip, *PINS], check=True, capture_output=True, text=True, timeout=_SECONDS)
    (packages,) = (Path(p) for p in _site_packages(python))
    lines = [f"import site; site.addsitedir({path!r})" for path in site.getsitepackages()]
    (packages / "parent.pth").write_text("\n".join(lines) + "\n")


def _site_packages(python: Path) -> list[str]:
    source = "import sysconfig; print(sysconfig.get_path('purelib'))"
    done = subprocess.run([python, "-c", source], check=True, capture_output=True, text=True)
    return [done.stdout.strip()]
