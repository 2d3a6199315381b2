"""People of a real Keycloak sign in to a real server, by the command line and their browsers."""

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from tests.support.clients.browser import Browser
from tests.support.environments.keycloak import (
    CLIENT_ID,
    CLIENT_SECRET,
    GROUPS_CLAIM,
    Keycloak,
    running_keycloak,
)
from tests.support.processes.shell import Shell
from tests.support.processes.windlass import make_single, running
from tests.support.services.member_keys import SECONDS
from tests.support.waiting import until

# The first of them fetches and builds Keycloak.
pytestmark = [pytest.mark.long, pytest.mark.timeout(2400)]
DOMAIN = "acme.example"
ANN, BEN, CAT, DAN, EVA = (f"{name}@{DOMAIN}" for name in ("ann", "ben", "cat", "dan", "eva"))
ZOE = "zoe@globex.example"
PEOPLE = {ANN: ["staff"], BEN: ["ml", "staff"], CAT: [], DAN: [], EVA: [], ZOE: ["ml"]}
# How often somebody tries whom the server refuses until it has fetched the issuer's new key.
EVERY = 5.0


@dataclass
class Acme:
    """An organization whose people come from its own Keycloak."""

    keycloak: Keycloak
    owner: Shell
    id: str
    project: str
    group: str

    @property
    def url(self) -> str:
        return self.owner.server.url


@dataclass
class Person:
    """One of its people, with a command line and a browser of their own."""

    acme: Acme
    shell: Shell
    browser: Browser

    async def log_in(self, *words: str) -> None:
        """Runs `windlass auth login`, and does in the browser what it asks for."""
        command = (sys.executable, "-m", "windlass", "auth", "login", "--base-url", self.acme.url)
        process = await asyncio.create_subprocess_exec(
            *command,
            *words,
            # The browser is one that it need not start.
            env=self.shell.environment | {"BROWSER": "true"},
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stderr is not None
        try:
            said = (await process.stderr.readline()).decode()
            link = re.search(r"\S+/login\?\S+$", said.rstrip())
            assert link is not None, said
            page = await self.browser.open(link[0])
            if "<form" in page.text:
                page = await self.browser.submit(page, organization_id=self.acme.id)
            assert page.status_code == 200, page.text
            said += (await process.stderr.read()).decode()
            assert await process.wait() == 0, said
        finally:
            if process.returncode is None:
                process.kill()

    def explained(self) -> dict[str, Any]:
        """What the person is told of their groups and roles."""
        done = self.shell.run("auth", "explain", "-o", "json", bare=True)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def is_signed_in(self) -> bool:
        return self.shell.run("auth", "status", bare=True).returncode == 0

    async def page(self) -> httpx.Response:
        """Where a sign-in in the browser alone ends."""
        query = urlencode({"organization": self.acme.id})
        return await self.browser.open(f"{self.acme.url}/login?{query}")

    async def status(self) -> int:
        """The status that the browser's session is answered."""
        return (await self.browser.http.get(f"{self.acme.url}/v1/me")).status_code

    async def comes_in(self) -> None:
        """Has a session of the command line and one of the browser."""
        await self.log_in("--web", "--organization", self.acme.id)
        assert "Signed in" in (await self.page()).text
        assert (self.is_signed_in(), await self.status()) == (True, 200)

    async def is_out(self) -> None:
        """Asserts that both sessions are over, that of the browser within a second."""
        await until(self.status, SECONDS, holds=lambda status: status == 401)
        assert not self.is_signed_in()


@pytest.fixture(scope="module")
def acme(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Acme]:
    folder = tmp_path_factory.mktemp("acme")
    settings: dict[str, Any] = {
        "agent": {"enabled": False},
        "oidc": {"allowed_networks": ["127.0.0.1/32"]},
    }
    installation = make_single(folder / "data", settings)
    with running_keycloak(folder) as keycloak, running(installation) as server:
        keycloak.make_realm(f"{server.url}/login/callback", PEOPLE)
        owner = Shell(server, folder)
        organization = owner.object("auth", "status")["organization"]
        project = owner.object("projects", "create", "search")["id"]
        group = owner.object("groups", "create", "ML engineers")["id"]
        tuner = ("roles", "create", "Tuner", "--in", project, "--permission", "jobs.read")
        owner.data("roles", "give", owner.object(*tuner)["id"], group, "--in", project)
        provider = owner.object(
            *("identity-providers", "create", "Acme", "--issuer", keycloak.issuer),
            *("--client-id", CLIENT_ID, "--default-role", "organization_reader"),
            *("--domain", DOMAIN, "--groups-claim", GROUPS_CLAIM, "--group", f"/ml={group}"),
            given=CLIENT_SECRET,
        )
        keycloak.end_sessions_at(f"{server.url}/login/backchannel/{provider['id']}")
        yield Acme(keycloak, owner, organization, project, group)


@asynccontextmanager
async def person(acme: Acme, name: str) -> AsyncIterator[Person]:
    async with Browser(name) as browser:
        home = acme.owner.home / name
        home.mkdir(exist_ok=True)
        yield Person(acme, Shell(acme.owner.server, home), browser)


async def test_an_invited_person_signs_in_by_a_code_with_pkce(acme: Acme) -> None:
    invited = ("invites", "create", "--email", ANN, "--role", "reader", "--in", acme.project)
    async with person(acme, ANN) as ann:
        await ann.log_in("--web", "--invite", acme.owner.object(*invited)["link"])
        assert sorted(ann.explained()["roles"]) == [
            "organization_reader in the organization, by membership",
            f"project_member in {acme.project}, by membership",
        ]
        assert "Signed in" in (await ann.page()).text
        assert await ann.status() == 200
        # Here Keycloak refuses whoever does without PKCE.
        callback = f"{acme.url}/login/callback"
        query = {"client_id": CLIENT_ID, "response_type": "code", "redirect_uri": callback}
        endpoint = f"{acme.keycloak.issuer}/protocol/openid-connect/auth"
        bare = await ann.browser.open(f"{endpoint}?{urlencode(query)}", until=callback)
        assert "error=invalid_request" in bare.headers["location"]


async def test_a_group_of_keycloak_gives_a_role(acme: Acme) -> None:
    reader = "organization_reader in the organization, by membership"
    async with person(acme, BEN) as ben:
        await ben.log_in("--web", "--organization", acme.id)
        explained = ben.explained()
        assert explained["provider"] == "Acme"
        assert explained["groups"] == [f"ML engineers ({acme.group}), by /ml"]
        tuner = f"Tuner in {acme.project}, by the group {acme.group}"
        assert sorted(explained["roles"]) == sorted([reader, tuner])
        acme.keycloak.take_from_group(BEN, "ml")
        await ben.log_in("--web", "--organization", acme.id)
        explained = ben.explained()
        assert (explained["groups"], explained["roles"]) == ([], [reader])
    async with person(acme, ZOE) as zoe:
        page = await zoe.page()
        assert (page.status_code, DOMAIN in page.text) == (403, True)


async def test_a_device_is_let_in(acme: Acme) -> None:
    async with person(acme, CAT) as cat:
        await cat.log_in("--device", "--organization", acme.id)
        assert cat.is_signed_in()


async def test_a_logout_at_keycloak_ends_both_sessions(acme: Acme) -> None:
    async with person(acme, DAN) as dan:
        await dan.comes_in()
        page = await dan.browser.open(f"{acme.keycloak.issuer}/protocol/openid-connect/logout")
        await dan.browser.submit(page)
        await dan.is_out()
        # Or an administrator there signs somebody out.
        await dan.comes_in()
        acme.keycloak.sign_out(DAN)
        await dan.is_out()


async def test_keycloak_signs_by_a_new_key(acme: Acme) -> None:
    async with person(acme, EVA) as eva:
        await eva.comes_in()
        before = acme.keycloak.key_ids()
        assert before.isdisjoint(acme.keycloak.rotate_keys())
        assert eva.is_signed_in()
        # The server asks for the keys of an issuer twice a minute at most.
        await until(eva.page, holds=lambda page: page.status_code == 200, every=EVERY)
        await eva.comes_in()
        acme.keycloak.sign_out(EVA)
        await eva.is_out()
