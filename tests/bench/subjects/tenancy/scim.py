"""Users that a directory creates by SCIM, several at a time as directories do.

The peer is scim2-server, which keeps them in memory, in an environment of its own: the same bodies
by the same client in turns. Ours are rows in Postgres, and each is in the audit log.
"""

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from tests.bench.figures import Figure, Options, plain
from tests.bench.plant import NO_AGENT, Plant, single, started
from tests.support.environments import made_once
from tests.support.processes.windlass import free_port

USERS, QUICK_USERS, TURN, BOUND = 10_000, 500, 100, 3
CLIENTS = 8
REQUIREMENTS = ("scim2-server==0.8.3",)
SCOPES = ["directory.read", "directory.write"]


async def measure(options: Options) -> list[Figure]:
    """See the module."""
    return await asyncio.to_thread(_measure, QUICK_USERS if options.quick else USERS)


def _measure(users: int) -> list[Figure]:
    ours = theirs = 0.0
    with single(NO_AGENT) as plant, _directory(plant) as http, _peer(plant.folder) as peer:
        for first in range(0, users, TURN):
            ours += _create(http, first)
            theirs += _create(peer, first)
        found = _find(http, users)
    created = Figure(name=f"scim_{users}_users", value=ours, unit="s")
    return [
        created.beside("scim2-server", theirs).at_most_times(BOUND),
        plain("scim_find_a_user", found * 1000, "ms"),
    ]


def _create(http: httpx.Client, first: int) -> float:
    def one(number: int) -> None:
        http.post("Users", json=_user(number)).raise_for_status()

    began = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(one, range(first, first + TURN)))
    return time.perf_counter() - began


def _find(http: httpx.Client, users: int) -> float:
    """The median of looking somebody up by name, as directories do before they create."""
    taken = []
    for number in range(0, users, max(users // 100, 1)):
        query = {"filter": f'userName eq "user{number}@acme.example"'}
        began = time.perf_counter()
        answer = http.get("Users", params=query).raise_for_status().json()
        taken.append(time.perf_counter() - began)
        if answer["totalResults"] != 1:
            raise AssertionError(f"user {number} is not found")
    return sorted(taken)[len(taken) // 2]


def _user(number: int) -> dict[str, Any]:
    address = f"user{number}@acme.example"
    return {
        "schemas": ["urn:ietf:params:scim:schemas:core:2.0:User"],
        "userName": address,
        "externalId": f"00u{number}",
        "name": {"givenName": "User", "familyName": f"Number {number}"},
        "displayName": f"User Number {number}",
        "emails": [{"value": address, "type": "work", "primary": True}],
        "active": True,
    }


@contextmanager
def _directory(plant: Plant) -> Iterator[httpx.Client]:
    """A client with the key of a directory."""
    with plant.windlass.http() as http:
        http.put("/v1/organization/directory", json={"role": "organization_reader"})
        body = {"name": "scim", "role": "platform_admin", "scopes": SCOPES}
        key = http.post("/v1/api_keys", json=body).raise_for_status().json()["value"]
    with plant.windlass.http(key) as http:
        http.base_url = f"{plant.windlass.url}/scim/v2/"
        yield http


@contextmanager
def _peer(folder: Path) -> Iterator[httpx.Client]:
    program = made_once.environment("scim-env", *REQUIREMENTS) / "scim2-server"
    port = free_port()
    url = f"http://127.0.0.1:{port}/"
    alive = f"{url}ServiceProviderConfig"
    command = [str(program), "--port", str(port)]
    with (
        started(command, alive, seconds=30, log=folder / "scim.log"),
        httpx.Client(base_url=url, timeout=60) as http,
    ):
        yield http
