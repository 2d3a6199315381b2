"""The units of deploy/systemd and the pages that install and upgrade by them.

No test starts them: the checker of systemd reads the units, and what is known to
break the walls around tenants' programs must not be in them.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.environments.required import lacking

ROOT = Path(__file__).parents[3]
UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
PAGES = [ROOT / "docs" / "how-to" / f"{name}.md" for name in ("install-on-a-server", "upgrade")]
SETTINGS = (ROOT / "docs" / "reference" / "configuration.md").read_text()

# bubblewrap makes namespaces and mounts, refuses to run with capabilities that it did not expect,
# and may mount no fresh /proc where something lies over parts of the old one.
BREAKS_WALLS = {
    *("RestrictNamespaces", "SystemCallFilter", "AmbientCapabilities", "PrivateUsers"),
    *("ProtectProc", "ProcSubset", "ProtectKernelTunables", "ProtectKernelLogs"),
}
# Of the agent alone: GPUs, control groups, and libraries that write programs.
BREAKS_WORK = {
    *("PrivateDevices", "DevicePolicy", "DeviceAllow", "ProtectClock", "ProtectControlGroups"),
    *("MemoryDenyWriteExecute", "PrivateNetwork"),
}


def directives(unit: Path) -> dict[str, str]:
    lines = (line.partition("=") for line in unit.read_text().splitlines() if line[:1] != "#")
    return {name: value for name, equals, value in lines if equals}


def test_there_are_units_and_pages() -> None:
    assert [unit.name for unit in UNITS] == ["windlass-agent.service", "windlass.service"]
    assert all(page.exists() for page in PAGES)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_takes_the_unit(unit: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        lacking("systemd-analyze is not installed")
    copy = tmp_path / unit.name
    # It wants the program to be there.
    copy.write_text(unit.read_text().replace("/opt/windlass/bin", str(Path(sys.executable).parent)))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_is_hardened_and_leaves_walls_whole(unit: Path) -> None:
    found = directives(unit)
    assert found["NoNewPrivileges"] == "yes"
    assert found["ProtectSystem"] == "strict"
    broken = BREAKS_WALLS | (BREAKS_WORK if "agent" in unit.name else set())
    assert not broken & found.keys()


def test_the_agents_workloads_outlive_it_and_the_server_ends_with_its_own() -> None:
    agent, server = (directives(unit) for unit in UNITS)
    assert (agent["KillMode"], server["KillMode"]) == ("process", "mixed")
    # Else systemd stops the whole service for one workload that took too much memory.
    assert agent["OOMPolicy"] == server["OOMPolicy"] == "continue"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_names_what_units_and_settings_have(page: Path) -> None:
    text = page.read_text()
    unknown = {name for name in re.findall(r"WINDLASS_\w+", text) if f"`{name}`" not in SETTINGS}
    assert not unknown
    units = "".join(unit.read_text() for unit in UNITS)
    places = set(re.findall(r"/etc/windlass/(?:agent-)?environment|/etc/windlass/\w+\.yaml", text))
    assert places
    assert all(place in units for place in places)
    shipped = re.findall(r"deploy/[\w./-]+\w", text)
    assert not [name for name in shipped if not (ROOT / name).exists()]
