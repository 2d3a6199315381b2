"""From the answer of what takes somebody's rights to their end at each of three gateways.

Three gateways, each a process with a data folder of its own, on the same services. A member chats
by a stream at each of them and asks on meanwhile. Then a key is revoked, a session of somebody who
signed in with an issuer ended, a member removed, a role taken from a member or changed, or a member
taken out of a group: by the first gateway, whose answer begins the time. It ends with the stream,
and with the first refusal. An engine computes nothing; its streams would go on for minutes.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import httpx
import yaml
from tests.bench.figures import Figure, Options, at_most, plain
from tests.bench.load import percentile
from tests.bench.plant import NO_AGENT, Plant, script, split_gateway
from tests.bench.stub_agent import joined, running_at
from tests.support.clients.browser import Browser
from tests.support.environments.oidc_provider import Issuer, running_issuer
from tests.support.processes.windlass import free_port, merged
from tests.support.services.signed_in import session_at

GATEWAYS = 3
ROUNDS, QUICK_ROUNDS = 20, 3
ASK_SECONDS = 0.005
CHUNKS = 10**6
KINDS = ("key", "session", "person", "role", "changed_role", "group")
ALLOWED = {"oidc": {"allowed_networks": ["127.0.0.0/8"]}}
ANN = {"ann": {"email": "ann@a.example", "email_verified": True}}


async def measure(options: Options) -> list[Figure]:
    """Times of all kinds together, and the worst of each."""
    rounds = QUICK_ROUNDS if options.quick else ROUNDS
    port = free_port()
    with script("null_engine", str(port)):
        async with (
            split_gateway({**NO_AGENT, **ALLOWED}) as plant,
            _more_gateways(plant) as urls,
            joined(plant, running_at(f"http://127.0.0.1:{port}")),
            _site(plant, urls) as site,
        ):
            took = {kind: await _rounds(site, kind, rounds) for kind in KINDS}
    every = [seconds for one in took.values() for seconds in one]
    return [
        at_most("revocation_p99", percentile(every, 0.99), "s", 1.0),
        plain("revocation_p50", percentile(every, 0.5), "s"),
        *(
            plain(f"revocation_{kind}", max(seconds), "s, the worst")
            for kind, seconds in took.items()
        ),
    ]


async def _rounds(site: "Site", kind: str, rounds: int) -> list[float]:
    found: list[float] = []
    for number in range(rounds):
        found += await site.revoke(kind, f"{kind}{number}")
    return found


@asynccontextmanager
async def _more_gateways(plant: Plant) -> AsyncIterator[list[str]]:
    """Starts further gateways with data folders of their own; yields the addresses of all."""
    windlass, urls = plant.windlass, [plant.windlass.url]
    settings = yaml.safe_load(windlass.configs["gateway"].read_text())
    for number in range(2, GATEWAYS + 1):
        own, port = plant.folder / f"gateway-{number}", free_port()
        own.mkdir(mode=0o700)
        different = {
            "data_dir": str(own),
            "http": {"port": port},
            "master_key": {"file": str(windlass.data / "keys" / "master.key")},
        }
        name = f"gateway-{number}"
        windlass.configs[name] = plant.folder / f"{name}.yaml"
        windlass.configs[name].write_text(yaml.safe_dump(merged(settings, different)))
        windlass.start(name)
        urls.append(f"http://127.0.0.1:{port}")
    transport = httpx.AsyncHTTPTransport(retries=200)
    async with httpx.AsyncClient(transport=transport) as client:
        for url in urls:
            while (await client.get(f"{url}/readyz")).status_code != 200:
                await asyncio.sleep(0.1)
    yield urls


@dataclass(frozen=True)
class Member:
    """Somebody who chats: their key, the call that ends it, and the project that they name."""

    key: str
    method: str
    path: str
    body: Any = None
    project: str = ""

    @property
    def headers(self) -> dict[str, str]:
        """Returns the headers of what they ask."""
        named = {"openai-project": self.project} if self.project else {}
        return {"authorization": f"Bearer {self.key}"} | named


@dataclass
class Site:
    """Gateways, and the owner of the organization at the first of them."""

    urls: list[str]
    client: httpx.AsyncClient
    owner: str
    model: str
    project: str
    # Of a person who has signed in before.
    browser: Browser

    async def revoke(self, kind: str, user: str) -> list[float]:
        """Seconds until each gateway has ended a member's stream, and refused their key."""
        member = await self._member(kind, user)
        began, ends = asyncio.Semaphore(0), list[float]()
        async with asyncio.TaskGroup() as group:
            for url in self.urls:
                group.create_task(self._stream(url, member, began, ends))
                group.create_task(self._ask_on(url, member, began, ends))
            for _ in range(2 * len(self.urls)):
                await began.acquire()
            await self._call(member.method, member.path, member.body)
            answered = time.perf_counter()
        return [end - answered for end in ends]

    async def _member(self, kind: str, user: str) -> Member:
        if kind == "session":
            made = await session_at(self.urls[0], self.browser)
            path = f"/v1/auth/sessions/{made['session_id']}"
            return Member(made["access_token"], "DELETE", path, project=self.project)
        member: dict[str, Any] = {"user_id": user, "project_id": self.project}
        key = {"name": user, "role": "project_member", **member}
        if kind in ("key", "person"):
            await self._call("PUT", "/v1/members", {**member, "role": "project_member"})
            made = await self._call("POST", "/v1/api_keys", key)
            path = f"/v1/members/{user}?project_id={self.project}"
            return Member(
                made["value"], "DELETE", f"/v1/api_keys/{made['id']}" if kind == "key" else path
            )
        await self._call("PUT", "/v1/members", {"user_id": user, "role": "organization_reader"})
        here = f"/v1/projects/{self.project}"
        body = {"role_name": user, "permissions": ["inference.invoke", "models.read"]}
        role = (await self._call("POST", f"{here}/roles", body))["id"]
        holder, end = f"users/{user}", f"{here}/users/{user}/roles/{role}"
        if kind == "group":
            groups = "/v1/organization/groups"
            group = (await self._call("POST", groups, {"name": user}))["id"]
            await self._call("POST", f"{groups}/{group}/users", {"user_id": user})
            holder, end = f"groups/{group}", f"{groups}/{group}/users/{user}"
        await self._call("POST", f"{here}/{holder}/roles", {"role_id": role})
        made = await self._call("POST", "/v1/api_keys", {**key, "scopes": body["permissions"]})
        if kind == "changed_role":
            changed = {"permissions": ["files.read"]}
            return Member(made["value"], "POST", f"{here}/roles/{role}", changed)
        return Member(made["value"], "DELETE", end)

    async def invite(self, issuer: Issuer) -> None:
        """Has the person of the browser join the project by an issuer of the installation."""
        trusted = issuer.provider(of_installation=True)
        await self._call("POST", "/v1/organization/identity_providers", trusted)
        wanted = {"projects": [{"id": self.project, "role": "member"}]}
        link = (await self._call("POST", "/v1/organization/invites", wanted))["link"]
        await self.browser.press(await self.browser.open(self.urls[0] + link), "Join")

    async def _call(self, method: str, path: str, body: Any = None) -> Any:
        """Asks as the owner at the first gateway; raises for an error."""
        headers = {"authorization": f"Bearer {self.owner}"}
        answer = await self.client.request(method, self.urls[0] + path, json=body, headers=headers)
        answer.raise_for_status()
        return answer.json()

    async def _stream(
        self, url: str, member: Member, began: asyncio.Semaphore, ends: list[float]
    ) -> None:
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": "Hello"}],
            "stream": True,
            "max_completion_tokens": CHUNKS,
        }
        path, headers = f"{url}/v1/chat/completions", member.headers
        with suppress(httpx.RemoteProtocolError):
            async with self.client.stream("POST", path, json=body, headers=headers) as answer:
                answer.raise_for_status()
                has_begun = False
                async for _ in answer.aiter_raw():
                    if not has_begun:
                        has_begun = True
                        began.release()
        ends.append(time.perf_counter())

    async def _ask_on(
        self, url: str, member: Member, began: asyncio.Semaphore, ends: list[float]
    ) -> None:
        path, headers, is_first = f"{url}/v1/models", member.headers, True
        while (await self.client.get(path, headers=headers)).status_code == 200:
            if is_first:
                is_first = False
                began.release()
            await asyncio.sleep(ASK_SECONDS)
        ends.append(time.perf_counter())


@asynccontextmanager
async def _site(plant: Plant, urls: list[str]) -> AsyncIterator[Site]:
    limits = httpx.Limits(max_connections=None)
    model = await asyncio.to_thread(plant.import_model)
    owner = plant.windlass.owner_key
    with running_issuer(f"{urls[0]}/login/callback", ANN) as issuer:
        async with httpx.AsyncClient(timeout=60, limits=limits) as client, Browser("ann") as ann:
            headers = {"authorization": f"Bearer {owner}"}
            me = (await client.get(f"{urls[0]}/v1/me", headers=headers)).json()
            site = Site(urls, client, owner, model, me["principal"]["project_id"], ann)
            await site.invite(issuer)
            yield site
