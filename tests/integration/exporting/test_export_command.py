"""`windlass exports`: a download goes on from what is there, and takes nobody's file away."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.processes.shell import Shell
from tests.support.processes.windlass import make_single, running
from tests.support.waiting import wait_until

from windlass.cli.framework.failures import USAGE


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with running(make_single(tmp_path / "data", {"agent": {"enabled": False}})) as server:
        yield Shell(server, tmp_path)


def test_a_download_goes_on_and_replaces_nothing_unasked(shell: Shell, tmp_path: Path) -> None:
    export = shell.data("exports", "create", "--personal", "-o", "name")

    def is_ready() -> bool:
        return bool(shell.object("exports", "show", export)["state"] == "ready")

    wait_until(is_ready)
    assert export in shell.data("exports", "list")
    with shell.server.http() as http:
        whole = http.get(f"/v1/exports/{export}/content").content
    # What a call before had, until it was broken off.
    partial = tmp_path / f".mine.tar.{export}.part"
    partial.write_bytes(whole[:1000])
    shell.data("exports", "download", export, "--to", str(tmp_path / "mine.tar"))
    assert (tmp_path / "mine.tar").read_bytes() == whole
    assert not partial.exists()
    again = shell.run("exports", "download", export, "--to", str(tmp_path / "mine.tar"))
    assert (again.returncode, "--force" in again.stderr) == (USAGE, True)
    shell.data("exports", "download", export)
    assert (shell.home / f"{export}.tar").read_bytes() == whole
    unknown = shell.run("exports", "download", "export_none")
    assert unknown.returncode != 0
    assert "No export" in unknown.stderr
