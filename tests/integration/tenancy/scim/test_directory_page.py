"""The how-to on directories, run as it is printed, against a real server."""

from pathlib import Path

from tests.support.processes import pages
from tests.support.processes.shell import PROGRAM, Shell
from tests.support.processes.windlass import make_single, running

PAGE = "how-to/connect-a-directory.md"


def test_the_page_on_directories_is_true(tmp_path: Path) -> None:
    with running(make_single(tmp_path / "data", {"agent": {"enabled": False}})) as server:
        shell = Shell(server, tmp_path)
        environment = shell.environment | shell.owner | {"WINDLASS_URL": server.url}
        environment["PATH"] = f"{Path(PROGRAM[0]).parent}:{environment['PATH']}"
        pages.run(pages.script(PAGE, until="Disconnect it"), environment, tmp_path)
        key = (tmp_path / "scim.key").read_text().strip()
        with server.http(key) as http:
            ann = http.get("/scim/v2/Users/ann@example.com").json()
            assert (ann["displayName"], ann["active"]) == ("Ann Lee", False)
            assert http.get("/v1/files").status_code == 403
        pages.run(pages.script(PAGE, after="Disconnect it"), environment, tmp_path)
        with server.http(key) as http:
            assert http.get("/scim/v2/Users").status_code == 403
