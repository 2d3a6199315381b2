"""`tools/setup.sh`: what it installs, in which order, and which torch.

The environment's Python is a stand-in, which notes what pip is asked to do.
"""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

SETUP = Path(__file__).parents[3] / "tools" / "setup.sh"
PYTORCH = "--index-url https://download.pytorch.org/whl/cpu"
PYTHON = """#!/bin/bash
# A stand-in: $WITH_CPU says which of the indexes has a build for the CPU.
here="$(dirname "$0")"
if [[ "$*" == *"pip index versions torch"* ]]; then
    case "$WITH_CPU:$*" in
        own:*--index-url*) exit 1 ;;
        own:* | pytorch:*--index-url*) echo "Available versions: 2.15.0, 2.13.0+cpu, 2.12.0" ;;
        *) echo "Available versions: 2.15.0, 2.13.0" ;;
    esac
elif [[ "$*" == *"import sys, torch"* ]]; then
    [ -e "$here/torch" ]
elif [[ "$*" == *"pip install"* ]]; then
    echo "$*" >> "$here/asked"
    [[ "$*" != *torch==* ]] || touch "$here/torch"
fi
"""
Setup = Callable[..., str]


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    folder = tmp_path / "my environment"
    (folder / "bin").mkdir(parents=True)
    executable(folder / "bin" / "python", PYTHON)
    return folder


def executable(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def setup(venv: Path, tmp_path: Path) -> Setup:
    """Runs the script; returns what it said."""
    programs = tmp_path / "programs"
    programs.mkdir()

    def run(*arguments: str, gpu: bool = False, **settings: str) -> str:
        executable(programs / "nvidia-smi", f"#!/bin/bash\nexit {0 if gpu else 9}\n")
        path = f"{programs}:{os.environ['PATH']}"
        settings = {"TORCH_INDEX": "", "WITH_CPU": "", **settings, "VENV": str(venv), "PATH": path}
        command = [str(SETUP), *arguments]
        return subprocess.check_output(command, env=os.environ | settings, text=True)

    return run


def installed(venv: Path) -> list[str]:
    """The installations that pip was asked for since the last call."""
    asked = venv / "bin" / "asked"
    lines = asked.read_text().splitlines() if asked.exists() else []
    asked.unlink(missing_ok=True)
    return [line.removeprefix("-m pip install --disable-pip-version-check ") for line in lines]


def test_what_runs_comes_before_what_tests(venv: Path, setup: Setup) -> None:
    said = setup("runtime").splitlines()
    first = installed(venv)
    assert [line.split(" into ")[0] for line in said[:2]] == [
        "Installing torch 2.13.0",
        "Installing Windlass",
    ]
    assert "torch==2.13.0" in first[0]
    assert "--editable .[all]" in first[-1]
    assert not any("dev" in line for line in first)
    assert (setup("runtime"), installed(venv)) == ("", [])
    assert "what its tests need" in setup()
    assert installed(venv) == [
        "--quiet --constraint constraints.txt windlass[dev]",
        "--quiet --constraint constraints.txt --no-build-isolation --editable plugin",
        "--quiet --no-deps apollo-torch==1.0.3",
    ]
    assert (setup(), setup("runtime"), installed(venv)) == ("", "", [])


def test_everything_comes_once(venv: Path, setup: Setup) -> None:
    setup()
    assert [line.rsplit(" ", 1)[1] for line in installed(venv)] == [
        "torch==2.13.0",
        "editables",
        ".[all]",
        "windlass[dev]",
        "plugin",
        "apollo-torch==1.0.3",
    ]


@pytest.mark.parametrize(
    ("index", "asked"), [("own", "--no-deps"), ("pytorch", f"{PYTORCH} --no-deps")]
)
def test_without_a_gpu_torch_is_the_build_for_the_cpu(
    venv: Path, setup: Setup, index: str, asked: str
) -> None:
    assert "torch 2.13.0 for the CPU" in setup("runtime", WITH_CPU=index)
    assert installed(venv)[0] == f"--quiet {asked} torch==2.13.0+cpu"


def test_without_an_index_that_has_it_torch_comes_with_cuda(venv: Path, setup: Setup) -> None:
    said = setup("runtime")
    assert "about 4.7 GB" in said
    assert "No NVIDIA GPU is here" in said
    assert installed(venv)[0] == "--quiet torch==2.13.0"


def test_with_a_gpu_torch_comes_with_cuda(venv: Path, setup: Setup) -> None:
    assert "for this machine's GPU" in setup("runtime", gpu=True, WITH_CPU="own")
    assert installed(venv)[0] == "--quiet torch==2.13.0"


def test_an_index_of_ones_own_is_asked_alone(venv: Path, setup: Setup) -> None:
    said = setup("runtime", WITH_CPU="own", TORCH_INDEX="https://mirror.example/whl")
    assert "from https://mirror.example/whl" in said
    assert installed(venv)[0] == "--quiet --index-url https://mirror.example/whl torch==2.13.0"


def test_an_installed_torch_stays(venv: Path, setup: Setup) -> None:
    (venv / "bin" / "torch").touch()
    assert "Installing torch" not in setup("runtime", WITH_CPU="own")
    assert not any("torch==" in line for line in installed(venv))
