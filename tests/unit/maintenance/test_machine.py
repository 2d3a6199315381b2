"""What the doctor finds on a machine that is not well, each with a remedy.

Where a machine of tests cannot be made ill, the fact that is looked up is another one.
"""

import datetime
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from tests.support.environments.certificates import self_signed

from windlass.confinement import making
from windlass.core.config import Settings
from windlass.maintenance.diagnosis import CheckResult
from windlass.maintenance.machine import check_machine
from windlass_agent.machine import nvidia


def examined(data: Path, **sections: Any) -> dict[str, CheckResult]:
    """Returns what the doctor finds, by part; unit tests open no port."""
    http = {"port": 0, **sections.pop("http", {})}
    found = check_machine(Settings(data_dir=data, http=http, **sections))
    assert all(bool(one.remedy) == (one.level != "ok") for one in found)
    return {one.part: one for one in found}


@pytest.mark.parametrize(
    ("days", "level", "words"),
    [(-1, "fail", "ended on"), (20, "warn", "is valid until"), (30, "ok", "is valid until")],
)
def test_a_certificate_that_ends(tmp_path: Path, days: int, level: str, words: str) -> None:
    end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days, hours=1)
    certificate, key = self_signed(tmp_path, end=end)
    tls = {"certificate": certificate, "key": key}
    kubernetes = {"certificate": certificate, "key": key}
    found = examined(
        tmp_path, http={"tls": tls}, grpc={"tls": tls}, sessions={"kubernetes": kubernetes}
    )
    for listener in ("http.tls", "grpc.tls", "sessions.kubernetes"):
        said = found[f"certificate {listener}"]
        assert (said.level, words in said.message) == (level, True)
    assert days != 20 or "20 days are left" in said.remedy


@pytest.mark.parametrize("content", [None, b"no certificate"])
def test_a_certificate_that_cannot_be_read(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "tls.crt"
    if content is not None:
        path.write_bytes(content)
    said = examined(tmp_path, http={"tls": {"certificate": path}})["certificate http.tls"]
    assert (said.level, f"{path} cannot be read" in said.message) == ("fail", True)


def test_a_disk_and_a_memory_that_are_nearly_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []

    def usage(folder: Path) -> Any:
        asked.append(folder)
        return SimpleNamespace(free=4.9e9, total=100e9)

    memory = SimpleNamespace(available=1.9e9, total=8e9)
    monkeypatch.setattr(shutil, "disk_usage", usage)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    found = examined(tmp_path / "not" / "made yet")
    assert asked == [tmp_path]
    assert (found["disk"].level, found["memory"].level) == ("warn", "warn")
    assert found["disk"].message == f"4.9 GB of 100.0 GB are free at {tmp_path}."
    assert found["memory"].message == "1.9 GB of 8.0 GB are available."


@pytest.fixture
def without_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine that has no bubblewrap, nor any other program."""
    monkeypatch.setenv("PATH", str(tmp_path))
    making.walled.cache_clear()
    yield
    making.walled.cache_clear()


@pytest.mark.usefixtures("without_tools")
@pytest.mark.parametrize(("mode", "level"), [("required", "fail"), ("preferred", "warn")])
def test_walls_that_cannot_be_made(tmp_path: Path, mode: str, level: str) -> None:
    said = examined(tmp_path, agent={"confinement": mode})["confinement"]
    assert (said.level, "bwrap" in said.message) == (level, True)
    assert "Install bubblewrap" in said.remedy


def test_walls_that_are_off(tmp_path: Path) -> None:
    assert examined(tmp_path, agent={"confinement": "off"})["confinement"].level == "warn"


@pytest.mark.usefixtures("without_tools")
def test_gpus_that_no_driver_shows(tmp_path: Path) -> None:
    without = {"confinement": "off"}
    assert examined(tmp_path, agent=without)["gpus"].message == "None; work runs on the CPUs."
    said = examined(tmp_path, agent={"gpus": ["0", "GPU-7"], **without})["gpus"]
    assert (said.level, said.message) == ("warn", "No driver shows 0, GPU-7 of agent.gpus.")


@pytest.mark.usefixtures("without_tools")
def test_gpus_of_a_driver_whose_tool_shows_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "0000:18:00.0").mkdir()
    (tmp_path / "0000:18:00.0" / "information").write_text("GPU UUID: GPU-a\nDevice Minor: 0\n")
    monkeypatch.setattr(nvidia, "DRIVER", tmp_path)
    said = examined(tmp_path, agent={"confinement": "off"})["gpus"]
    assert said.level == "warn"
    assert said.message == "The NVIDIA driver has 1, and nvidia-smi shows none."
