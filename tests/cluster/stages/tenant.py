"""An organization that administers itself: an issuer, a directory, a team and a person of it."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml
from tests.cluster.provision.site import REPOSITORY
from tests.cluster.stages.journey import Journey, Project
from tests.support.environments.oidc_provider import Issuer
from tests.support.processes import warm
from tests.support.processes.warm import PROGRAM
from tests.support.services.scim import OF_A_GROUP, OF_A_PATCH, OF_A_USER, SCOPES

# Stands for a person at a browser, which the command line opens.
_BROWSER = f"""#!{sys.executable}
import asyncio, os, sys
sys.path.insert(0, {str(REPOSITORY)!r})
from tests.support.clients.browser import Browser

async def main():
    async with Browser(os.environ["PERSON"]) as browser:
        page = await browser.open(sys.argv[1])
        assert page.status_code == 200, page.text

asyncio.run(main())
"""
# What members of a team may, by their group.
_MEMBER = [
    "models.read", "inference.invoke", "files.read", "files.write", "jobs.read", "jobs.write",
    "clusters.read", "sessions.read", "sessions.write",
]  # fmt: skip


@dataclass
class Tenant:
    """An organization, as its owner administers it."""

    journey: Journey
    name: str
    id: str
    owner_key: str
    directory_key: str
    team: Project
    group_id: str = ""
    people: dict[str, str] = field(default_factory=dict)

    @classmethod
    def made(cls, journey: Journey, name: str, cluster: str, issuer: Issuer) -> "Tenant":
        """An organization whose people come by its own issuer and its own directory."""
        organization = journey.json("POST", "/organizations", title=name)["id"]
        there = {"organization": organization}
        body = {"name": "owner", "role": "organization_owner"}
        owner = journey.json("POST", "/api_keys", **there, **body)["value"]
        team = journey.team(name, cluster, **there)
        role = "organization_reader"
        journey.json("PUT", "/organization/directory", owner, role=role)
        scim: dict[str, Any] = {"name": "directory", "role": "organization_owner"}
        scim["scopes"] = SCOPES
        directory = journey.json("POST", "/api_keys", owner, **scim)["value"]
        own = issuer.provider(person_claim="email")
        journey.json("POST", "/organization/identity_providers", owner, **own)
        tenant = cls(journey, name, organization, owner, directory, team)
        tenant._give_team_its_group()
        return tenant

    def _give_team_its_group(self) -> None:
        group = {"schemas": [OF_A_GROUP], "displayName": "Tuners"}
        self.group_id = self.scim("POST", "/Groups", group)["id"]
        body = {"role_name": "tuner", "permissions": _MEMBER}
        role = self.ask("POST", f"/projects/{self.team.id}/roles", **body)["id"]
        self.ask("POST", f"/projects/{self.team.id}/groups/{self.group_id}/roles", role_id=role)

    def ask(self, method: str, path: str, **body: Any) -> Any:
        """What the owner is answered."""
        return self.journey.json(method, path, self.owner_key, **body)

    def scim(self, method: str, path: str, body: Any = None) -> Any:
        """What the directory is answered."""
        with self.journey.windlass.http(self.directory_key) as http:
            answer = http.request(method, f"/scim/v2{path}", json=body)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def joins(self, person: str, address: str) -> None:
        """The directory provisions a person, and puts them into the team's group."""
        body = {"schemas": [OF_A_USER], "userName": address, "active": True}
        self.people[person] = str(self.scim("POST", "/Users", body)["id"])
        self._patch(f"/Groups/{self.group_id}", "add", "members", [{"value": self.people[person]}])

    def deactivates(self, person: str) -> None:
        """The directory says that a person is out."""
        self._patch(f"/Users/{self.people[person]}", "replace", "active", False)

    def _patch(self, path: str, op: str, at: str, value: Any) -> None:
        operation = {"op": op, "path": at, "value": value}
        self.scim("PATCH", path, {"schemas": [OF_A_PATCH], "Operations": [operation]})


@dataclass
class Person:
    """Somebody at a terminal, who has signed in and never seen a key."""

    tenant: Tenant
    name: str
    home: Path

    @property
    def environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("WINDLASS", "OPENAI"))}
        home = {"HOME": str(self.home), "XDG_CONFIG_HOME": str(self.home)}
        browser = {"BROWSER": f"{self.home / 'browser'} %s &", "PERSON": self.name}
        return kept | home | browser | {"WINDLASS_PROJECT": self.tenant.team.id}

    def sign_in(self) -> None:
        """By the organization's own issuer, in a browser of this machine."""
        self.home.mkdir()
        browser = self.home / "browser"
        browser.write_text(_BROWSER)
        browser.chmod(0o700)
        server = ("--base-url", self.tenant.journey.windlass.url)
        self.run("auth", "login", *server, "--web", "--organization", self.tenant.id)

    def run(self, *words: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
        done = warm.command(
            *words, given="", environment=self.environment, folder=self.home, timeout=600
        )
        assert done.returncode == 0 or not check, (words, done.stderr)
        return done

    def object(self, *words: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run(*words, "-o", "json").stdout)
        return found

    @property
    def session(self) -> str:
        """The secret of the session that the command line keeps."""
        stored = yaml.safe_load((self.home / "windlass" / "config.yaml").read_text())
        return str(stored["contexts"]["default"]["api_key"])

    def http(self) -> httpx.Client:
        http = self.tenant.journey.windlass.http(self.session)
        http.headers["OpenAI-Project"] = self.tenant.team.id
        return http

    def kubectl(self, *words: str) -> list[str]:
        """The command line of kubectl with a kubeconfig of the command."""
        config = self.home / "kubeconfig.yaml"
        if not config.exists():
            config.write_text(self._kubeconfig())
        (cluster,) = self.tenant.journey.clusters.values()
        program = str(cluster.kubectl.program)
        return [program, f"--kubeconfig={config}", f"--cache-dir={self.home}/cache", *words]

    def _kubeconfig(self) -> str:
        (cluster,) = self.tenant.journey.ids.values()
        printed = self.run("clusters", "kubeconfig", cluster).stdout
        # kubectl starts its plugin for each command.
        return printed.replace(PROGRAM[0], str(warm.FORKS.program(Path(PROGRAM[0]))))


def about(person: str, address: str) -> Mapping[str, Any]:
    """What an issuer tells of a person."""
    return {"email": address, "email_verified": True, "name": person.title()}
