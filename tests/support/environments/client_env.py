"""Windlass installed without extras, as somebody who only calls a server has it.

Packages come from an index once for each Python, and from then on out of `build/`.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.environments import made_once, required

ROOT = made_once.BUILD.parent
_SECONDS = 240
_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")


def interpreter(*versions: str) -> Path:
    """The first Python of versions such as 3.12; the test is skipped where none is installed."""
    asked = "import sys; print('%d.%d' % sys.version_info[:2])"
    for version in versions:
        homes = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin"))
        candidates = [shutil.which(f"python{version}"), *(home / "python" for home in homes)]
        # One of pyenv's links may lead to nothing.
        for one in candidates:
            if one and _prints(one, asked) == version:
                return Path(one)
    pytest.skip(f"Python {', '.join(versions)} is not installed here.")


def wheel(folder: Path) -> Path:
    """The wheel of this checkout, built into a folder."""
    build = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder))
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=_SECONDS)
    (built,) = folder.glob("windlass-*.whl")
    return built


def installed(built: Path, python: Path, folder: Path) -> Path:
    """The `bin` of a new environment with the wheel and what it requires, and nothing else."""
    subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True)
    ours = folder / "bin" / "python"
    offline = ("--no-index", "--find-links", str(_packages(built, ours)))
    subprocess.run(
        [*_PIP, "--python", str(ours), "install", *offline, str(built)],
        check=True,
        timeout=_SECONDS,
    )
    return folder / "bin"


def _packages(built: Path, python: Path) -> Path:
    """A folder with the packages that the wheel requires, for one Python."""
    metadata = f"import zipfile; z = zipfile.ZipFile({str(built)!r}); " + (
        "print(z.read(next(n for n in z.namelist() if n.endswith('/METADATA'))).decode())"
    )
    lines = _prints(sys.executable, metadata).splitlines()
    needed = [
        line for line in lines if line.startswith("Requires-Dist:") and "extra ==" not in line
    ]
    requirements = [line.removeprefix("Requires-Dist:").strip() for line in needed]

    def download(folder: Path) -> None:
        folder.mkdir(parents=True)
        pip = (*_PIP, "--python", str(python), "download", "--only-binary=:all:", "-d", str(folder))
        subprocess.run([*pip, *requirements], check=True, capture_output=True, timeout=_SECONDS)

    version = _prints(python, "import sys; print(sys.version)")
    try:
        return made_once.once("client-packages", "\n".join((version, *requirements)), download)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        required.lacking(f"The packages of the client cannot be had: {error.stderr!r}")


def _prints(python: str | Path, source: str) -> str:
    done = subprocess.run([python, "-c", source], capture_output=True, text=True, timeout=30)
    return done.stdout.strip() if done.returncode == 0 else ""
