"""An environment with TorchTune beside the one that runs the tests, made in seconds.

PEFT refuses the torchao that TorchTune needs, so they cannot share one. All that both have, torch
first of all, is taken from the tests' own.
"""

import fcntl
import shutil
import site
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from tests.servers import required

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


def torchtune_python(cache: pytest.Cache) -> Path:
    """The interpreter; the test is skipped where the packages cannot be had."""
    try:
        return environment(cache.mkdir("torchtune"))
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        required.lacking(f"TorchTune and its packages cannot be installed: {error.stderr}")


def environment(folder: Path) -> Path:
    """The interpreter of the environment in a folder, made there unless it is there."""
    folder.mkdir(parents=True, exist_ok=True)
    home = folder / "env"
    mark = home / "pins"
    wanted = "\n".join([sys.version, sysconfig.get_path("purelib"), *PINS])
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not mark.exists() or mark.read_text() != wanted:
            shutil.rmtree(home, ignore_errors=True)
            _make(home)
            mark.write_text(wanted)
    return home / "bin" / "python"


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
