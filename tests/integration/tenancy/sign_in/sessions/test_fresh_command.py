"""The command line before a dangerous step: what it says, and the sign-in that it asks for."""

from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import psycopg
import pytest
from tests.support.clients.browser_command import browser_command
from tests.support.environments.oidc_provider import CLIENT_ID, CLIENT_SECRET, running_issuer
from tests.support.processes.shell import Shell
from tests.support.processes.windlass import make_single, running
from tests.support.waiting import wait_until

STEP = ("identity-providers", "set-policy")


@pytest.mark.parametrize("name", ["default", "work"])
def test_the_command_says_what_to_do(tmp_path: Path, database_url: str, name: str) -> None:
    plain = database_url.replace("+psycopg", "")
    settings: dict[str, Any] = {
        "agent": {"enabled": False},
        "database": {"url": plain},
        "oidc": {"allowed_networks": ["127.0.0.1/32"]},
    }
    installation = make_single(tmp_path / "data", settings)
    people = {"ann": {"email": "ann@example.com", "email_verified": True}}
    callback = f"{installation.url}/login/callback"
    with running_issuer(callback, people) as issuer, running(installation) as server:
        shell = Shell(server, tmp_path)
        made = ("identity-providers", "create", "ours", "--issuer", issuer.url, "--client-id")
        shell.object(*made, CLIENT_ID, given=f"{CLIENT_SECRET}\n")
        link = shell.object("invites", "create", "--role", "owner")["link"]

        def command(*words: str) -> "CompletedProcess[str]":
            browser = {"BROWSER": browser_command(tmp_path)}
            return shell.run(*words, bare=True, environment=browser)

        sign_in = ("auth", "login", "--web", "--name", name)
        done = command(*sign_in, "--base-url", server.url, "--invite", link)
        assert done.returncode == 0, done.stderr
        assert command(*STEP).returncode == 0
        with psycopg.connect(plain, autocommit=True) as connection:
            connection.execute("UPDATE users_sessions SET auth_at = auth_at - 900")
            connection.execute(
                "INSERT INTO users_key_changes (key_id) SELECT id FROM users_sessions"
            )

        refused = wait_until(lambda: _refused(command(*STEP)))
        again = "windlass auth login --web --fresh"
        assert "fresh_sign_in_required" in refused
        assert again in refused
        assert (f"{again} --name work" in refused) == (name == "work")
        # The issuer is the organization's own, which it was not asked for again.
        done = command(*sign_in, "--fresh")
        assert done.returncode == 0, done.stderr
        assert command(*STEP).returncode == 0


def _refused(done: "CompletedProcess[str]") -> str:
    """What a command that is refused says; empty for one that is not, yet."""
    return done.stderr if done.returncode else ""
