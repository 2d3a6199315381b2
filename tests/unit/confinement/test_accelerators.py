"""GPU device files within a confinement."""

import sysconfig
from pathlib import Path

import pytest

from windlass.confinement import python_paths
from windlass.confinement.walls import accelerators


@pytest.fixture
def dev(tmp_path: Path) -> Path:
    (tmp_path / "dri").mkdir()
    for name in (
        "nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "nvidia-caps", "kfd",
        "dri/renderD128", "dri/renderD129", "null",
    ):  # fmt: skip
        (tmp_path / name).touch()
    return tmp_path


def names(dev: Path, *devices: str) -> list[str]:
    found = accelerators(tuple(dev / name for name in devices), root=dev)
    return [str(path.relative_to(dev)) for path in found]


def test_without_gpus_there_are_none(dev: Path) -> None:
    assert names(dev) == []
    assert names(dev, "nvidia7") == []


def test_one_of_nvidias_comes_with_what_drives_it_and_no_other(dev: Path) -> None:
    assert names(dev, "nvidia1") == ["nvidia1", "nvidia-caps", "nvidia-uvm", "nvidiactl"]


def test_one_of_amds_comes_with_what_drives_it_and_no_other(dev: Path) -> None:
    assert names(dev, "dri/renderD129") == ["dri/renderD129", "kfd"]


def test_where_nobody_says_which_all_are_there(dev: Path) -> None:
    found = {path.name for path in accelerators(None, root=dev)}
    assert found == {"nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "nvidia-caps",
                     "kfd", "dri"}  # fmt: skip


def test_the_headers_that_triton_compiles_against_are_within() -> None:
    headers = Path(sysconfig.get_path("include"))
    assert {Path("/usr"), *python_paths()}.intersection(headers.parents)
