"""An environment with SGLang's wheel, whose launcher is a stand-in: SGLang itself needs CUDA.

The wheel's own parser of flags and its own types of requests and answers are used; torch and what
else those import is the tests' own. Only `sglang.launch_server` is ours
(`stand_in`).
"""

import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from tests.support.environments import made_once, required
from tests.support.environments.locks import locked

VERSION = "0.5.23"
STAND_IN = Path(__file__).parent / "stand_in"
# Beside the tests' own packages.
_PACKAGES = (f"sglang=={VERSION}", "pybase64", "pyzmq")
_SECONDS = 900


def sglang_python() -> Path:
    """The interpreter; the test is skipped where the wheel cannot be had."""
    try:
        return environment()
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        required.lacking(f"SGLang's wheel cannot be installed: {error.stderr!r}")


def environment() -> Path:
    """The interpreter of the environment, made once, with the stand-in as it is now."""
    parent = sysconfig.get_path("purelib")
    home = made_once.once("sglang-env", "\n".join((sys.version, parent, *_PACKAGES)), _make)
    (packages,) = home.glob("lib/python*/site-packages")
    with locked(home.with_suffix(".lock")):
        for source in STAND_IN.glob("*.py"):
            target = packages / "sglang" / source.name
            if not target.exists() or target.read_bytes() != source.read_bytes():
                draft = target.with_suffix(".part")
                shutil.copyfile(source, draft)
                draft.replace(target)
    return home / "bin" / "python"


def _make(home: Path) -> None:
    print(f"installing SGLang's wheel into {home}", file=sys.stderr, flush=True)
    venv.create(home, with_pip=False, symlinks=True)
    (packages,) = home.glob("lib/python*/site-packages")
    parent = sysconfig.get_path("purelib")
    (packages / "parent.pth").write_text(f"import site; site.addsitedir({parent!r})\n")
    pip = [sys.executable, "-m", "pip", "--python", str(home / "bin" / "python"), "install"]
    options = ["--quiet", "--disable-pip-version-check", "--no-compile", "--no-deps"]
    subprocess.run(
        [*pip, *options, *_PACKAGES], check=True, capture_output=True, text=True, timeout=_SECONDS
    )
    # What is SGLang's lies beside what stands in for it, which finds the rest there.
    shutil.move(packages / "sglang", packages / "sglang_wheel")
    (packages / "sglang").mkdir()
