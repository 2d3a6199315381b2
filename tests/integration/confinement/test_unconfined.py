"""Machines where no walls can be made, and how their operator learns it."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.environments.postgres import reachable_folder
from tests.support.processes.command import windlass
from tests.support.processes.windlass import NO_SPARE, make_single, running
from tests.support.waiting import wait_until

NOT_INSTALLED = "bwrap is not installed: install bubblewrap and util-linux"
# What bubblewrap does where the kernel gives an ordinary user no namespaces.
REFUSING = "#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n"


@pytest.fixture
def programs() -> Iterator[Path]:
    """A folder with every program of this machine but bubblewrap."""
    with reachable_folder() as folder:
        for place in os.environ["PATH"].split(os.pathsep):
            for program in Path(place).glob("*"):
                link = folder / program.name
                if program.name != "bwrap" and not link.is_symlink():
                    link.symlink_to(program)
        yield folder


@pytest.mark.parametrize(
    ("mode", "level", "code"), [("preferred", "warning", 0), ("required", "error", 1)]
)
@pytest.mark.parametrize("program", ["", REFUSING], ids=["missing", "refusing"])
def test_the_configuration_is_told_what_is_missing(
    programs: Path, tmp_path: Path, program: str, mode: str, level: str, code: int
) -> None:
    if program:
        (programs / "bwrap").write_text(program)
        (programs / "bwrap").chmod(0o755)
    variables = {"PATH": str(programs), "WINDLASS_AGENT__CONFINEMENT": mode}
    done = windlass(tmp_path, "config", "check", **variables)
    assert done.returncode == code, done.stdout
    (line,) = [line for line in done.stdout.splitlines() if "agent.confinement" in line]
    assert line.startswith(f"{level}: agent.confinement: ")
    assert ("No permissions to create new namespace" if program else NOT_INSTALLED) in line
    assert "Engines and jobs run as the server's user, and can read what that user can." in line


def test_a_server_without_walls_says_so_once(programs: Path) -> None:
    with reachable_folder() as folder:
        server = make_single(folder / "data", NO_SPARE)
        server.environments["all"] = {"PATH": str(programs)}
        with running(server, divisible=False), server.http() as http:
            wait_until(lambda: http.get("/v1/clusters").json()["data"][0]["live"], "an agent")
            lines = [line for line in server.log().splitlines() if "confinement" in line]
    (said,) = map(json.loads, lines)
    assert (said["event"], said["level"]) == ("confinement_unavailable", "warning")
    assert said["error"] == NOT_INSTALLED


def test_a_server_that_requires_walls_does_not_start_without(programs: Path) -> None:
    with reachable_folder() as folder:
        variables = {"PATH": str(programs), "WINDLASS_AGENT__CONFINEMENT": "required"}
        done = windlass(folder, "serve", "--data", str(folder / "data"), "--port", "0", **variables)
    assert done.returncode == 2
    assert f"windlass: {NOT_INSTALLED}" in done.stderr
