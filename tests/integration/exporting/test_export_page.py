"""The how-to on exports, run as it is printed."""

import os
from pathlib import Path

from tests.support.processes import pages
from tests.support.processes.shell import PROGRAM, Shell
from tests.support.processes.windlass import make_single, running

PAGE = "how-to/export-what-you-have.md"


def test_the_page_on_exports_is_true(tmp_path: Path) -> None:
    settings = {"agent": {"enabled": False}}
    with running(make_single(tmp_path / "data", settings)) as windlass:
        with windlass.http() as http:
            sent = {"file": ("words.txt", b"what I wrote\n")}
            made = http.post("/v1/files", data={"purpose": "user_data"}, files=sent)
            assert made.status_code == 200, made.text
        shell = Shell(windlass, tmp_path)
        environment = shell.environment | shell.owner
        environment["PATH"] = f"{Path(PROGRAM[0]).parent}{os.pathsep}{environment['PATH']}"
        said = pages.run(pages.script(PAGE), environment, tmp_path)
        assert "files are whole" in said
        assert "Default organization" in said
        assert '"role": "platform_admin"' in said
        copies = [
            path for path in (tmp_path / "everything/files/objects").rglob("*") if path.is_file()
        ]
        assert [path.read_bytes() for path in copies] == [b"what I wrote\n"]
        assert (tmp_path / "everything.tar").stat().st_mode & 0o777 == 0o600
