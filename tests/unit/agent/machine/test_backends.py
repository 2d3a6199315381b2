"""Backends that an agent reports."""

import subprocess
import sys
from pathlib import Path

import pytest

from windlass_agent.machine import backends

DISTS = {"torchtune": "0.6.1+cpu", "torchao": "0.15.0", "torchdata": "0.11.0"}


def environment(
    folder: Path, dists: dict[str, str], modules: tuple[str, ...] = ("torch", "transformers")
) -> Path:
    """An interpreter that sees these distributions, and modules of these names."""
    packages = folder / "packages"
    for name, version in dists.items():
        info = packages / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    for name in (*modules, "windlass_agent"):
        (packages / name).mkdir(parents=True)
        (packages / name / "__init__.py").touch()
    python = folder / "python"
    # What `-I` would hide, as the site packages of an environment are not.
    source = f"import sys; sys.path.insert(0, {str(packages)!r}); exec(sys.argv[1])"
    python.write_text(f'#!/bin/sh\nexec python3 -S -c "{source}" "$3"\n')
    python.chmod(0o755)
    return python


def test_torchtune_is_said_where_its_releases_go_together(tmp_path: Path) -> None:
    assert {"torchtune", "trl"} <= set(backends.runnable_backends(environment(tmp_path, DISTS)))


@pytest.mark.parametrize(
    "dists",
    [
        {},
        {**DISTS, "torchao": "0.16.0"},
        {name: version for name, version in DISTS.items() if name != "torchdata"},
    ],
)
def test_another_release_runs_no_job(tmp_path: Path, dists: dict[str, str]) -> None:
    assert "torchtune" not in backends.runnable_backends(environment(tmp_path, dists))


def test_an_interpreter_that_is_none_runs_no_job(tmp_path: Path) -> None:
    assert "torchtune" not in backends.runnable_backends(tmp_path / "nothing")
    python = environment(tmp_path, DISTS, modules=("transformers",))
    assert "torchtune" not in backends.runnable_backends(python)


def test_this_environment_has_no_torchtune() -> None:
    # PEFT would refuse the torchao that comes with it.
    assert "torchtune" not in backends.runnable_backends(None)


def test_what_qlora_and_zero_need_is_said_where_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("bitsandbytes", "deepspeed"):
        monkeypatch.setitem(sys.modules, name, None)
    assert backends.installed_libraries() == []
    (tmp_path / "deepspeed").mkdir()
    (tmp_path / "deepspeed" / "__init__.py").touch()
    monkeypatch.delitem(sys.modules, "deepspeed")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert backends.installed_libraries() == ["deepspeed"]


def test_a_probe_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(*_: object, **__: object) -> None:
        raise subprocess.TimeoutExpired("python", 60)

    monkeypatch.setattr(subprocess, "run", hang)
    assert "torchtune" not in backends.runnable_backends(tmp_path / "python")
