"""The how-to on issuers, run as it is printed: a real server, issuer and command line."""

from pathlib import Path
from typing import Any

from tests.support.clients.browser_command import browser_command
from tests.support.environments.oidc_provider import CLIENT_SECRET, running_issuer
from tests.support.processes import pages
from tests.support.processes.shell import PROGRAM, Shell
from tests.support.processes.windlass import make_single, running

PAGE = "how-to/connect-an-issuer.md"


def test_the_page_on_issuers_is_true(tmp_path: Path) -> None:
    person = {"email": "ann@example.com", "email_verified": True, "groups": ["ml"]}
    settings: dict[str, Any] = {
        "agent": {"enabled": False},
        "oidc": {"allowed_networks": ["127.0.0.1/32"]},
    }
    installation = make_single(tmp_path / "data", settings)
    callback = f"{installation.url}/login/callback"
    with running_issuer(callback, {"ann": person}) as issuer, running(installation) as server:
        shell = Shell(server, tmp_path)
        environment = shell.environment | shell.owner
        environment |= {
            "PATH": f"{Path(PROGRAM[0]).parent}:{environment['PATH']}",
            "BROWSER": browser_command(tmp_path),
            "CLIENT_SECRET": CLIENT_SECRET,
            "SERVER": server.url,
        }
        here = {"https://issuer.example.com": issuer.url}
        pages.run(pages.script(PAGE, here, until="Come in yourself"), environment, tmp_path)
        as_owner = pages.script(PAGE, here, after="Come in yourself", until="Invite others")
        said = pages.run(as_owner, environment, tmp_path)
        assert "context default" in said
        # What a person declines in the browser, the command line says.
        link = shell.object("invites", "create", "--role", "reader")["link"]
        words = ("auth", "login", "--base-url", server.url, "--web", "--invite", link)
        declined = shell.run(*words, bare=True, environment=environment | {"ANSWER": "No"})
        assert (declined.returncode, "answered with no" in declined.stderr) == (1, True)
        # Signed in, without the owner's key.
        for name in shell.owner:
            del environment[name]
        assert "platform_admin" in pages.run("windlass auth status", environment, tmp_path)
        pages.run(pages.script(PAGE, here, after="Invite others"), environment, tmp_path)
        with server.http() as http:
            assert http.get("/v1/auth/sessions").json()["data"] == []
