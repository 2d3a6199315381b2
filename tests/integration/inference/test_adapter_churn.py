"""More adapters than places under load: requests are held, answered by the right one, counted once.

Everything is real: gateway, services, agent, the built-in engine, and openai-python.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from openai import AsyncOpenAI
from tests.support.environments.postgres import reachable_folder
from tests.support.factories.toy_model import make_adapter, make_model
from tests.support.services.front import MODULES, Front, running_front
from tests.support.services.platform import Platform, folder_files
from tests.support.waiting import until

from windlass.api.inference.v1 import inference_pb2 as pb
from windlass.core.rpc.tokens import TokenAuthority
from windlass_agent.engines.endpoint import parse_endpoint

pytestmark = [pytest.mark.torch, pytest.mark.timeout(900)]
PLACES = 4
WEIGHTS = ("one", "two", "three")
# Of the clients together, and the longest that one of them should be held on a busy machine.
CLIENTS, HELD_SECONDS = 6, 120.0


@dataclass
class Churn:
    """Adapters of three kinds of weights under many names, and what was answered."""

    front: Front
    platform: Platform
    names: list[str]
    answers: dict[str, set[str]] = field(default_factory=dict)
    tokens: Counter[str] = field(default_factory=Counter)
    longest: float = 0.0
    address: str = ""
    most_listed: int = 0

    async def ask(self, client: AsyncOpenAI, name: str) -> None:
        """Sends a request that must be answered."""
        began = time.monotonic()
        answer = await client.completions.create(
            model=name, prompt="the quick brown", max_tokens=12, temperature=0
        )
        self.longest = max(self.longest, time.monotonic() - began)
        assert answer.model == name
        assert answer.usage is not None
        self.tokens[name] += answer.usage.total_tokens
        self.answers.setdefault(name, set()).add(answer.choices[0].text)

    async def work(self, requests: int, seed: int) -> None:
        """Asks for random ones, one after the other."""
        choice = random.Random(seed)
        async with self.front.openai() as client:
            for _ in range(requests):
                await self.ask(client, choice.choice(self.names))
                await self.look()

    async def look(self) -> None:
        """Looks at the engine's own list."""
        target = parse_endpoint(self.address)
        connector = aiohttp.UnixConnector(path=str(target.uds))
        async with (
            aiohttp.ClientSession(target.base_url, connector=connector) as http,
            http.get("/v1/models") as answer,
        ):
            listed = [one for one in (await answer.json())["data"] if one.get("parent")]
        self.most_listed = max(self.most_listed, len(listed))

    async def billed(self) -> Counter[str]:
        """The tokens that were counted, by model."""
        async with self.front.http() as http:
            query: dict[str, Any] = {"start_time": int(time.time()) - 3600, "group_by": "model"}
            page = (await http.get("/v1/usage", params=query)).json()
        found = Counter[str]()
        for row in [row for bucket in page["data"] for row in bucket["results"]]:
            found[row["model"]] += row["input_tokens"] + row["output_tokens"]
        return found


async def address_of(platform: Platform) -> str:
    """Returns where the only engine listens."""
    request = pb.WatchRoutesRequest()
    async for delta in platform.inference_internal.WatchRoutes(request):
        for route in delta.routes:
            if route.endpoints:
                return str(route.endpoints[0].address)
    raise AssertionError("the watch ended")


@asynccontextmanager
async def churning(database_url: str, folder: Path, number: int) -> AsyncIterator[Churn]:
    base = make_model(folder / "toy")
    for seed, name in enumerate(WEIGHTS):
        make_adapter(base, folder / name, seed=seed)
    modules = (*MODULES, "inference", "agent")
    sections: dict[str, Any] = {"inference": {"max_adapters": PLACES}}
    async with running_front(database_url, folder / "data", modules, **sections) as front:
        async with front.http() as http:
            me = (await http.get("/v1/me")).json()
        own = TokenAuthority(front.app.database, kind="gateway", name="churn")
        await own.rotate()
        platform = Platform(front.app, own)
        project, organization = me["project"]["id"], me["organization"]["id"]
        caller = platform.tenant(project, organization)
        model = await platform.import_model("toy", folder_files(base), **caller)
        files = [folder_files(folder / name) for name in WEIGHTS]
        names = [f"ft:toy:{one}" for one in range(number)]
        for one, name in enumerate(names):
            await platform.register_adapter(
                name, model, files[one % 3], project=project, organization=organization
            )
        yield Churn(front, platform, names)


@pytest.mark.parametrize(
    ("number", "requests"), [(10, 4), pytest.param(50, 40, marks=pytest.mark.long)]
)
async def test_many_adapters_on_four_places_answer_all_requests_once(
    database_url: str, number: int, requests: int
) -> None:
    with reachable_folder() as folder:
        async with churning(database_url, folder, number) as churn:
            await churn.ask(churn.front.openai(), churn.names[0])
            churn.address = await address_of(churn.platform)
            began, churn.longest = time.monotonic(), 0.0
            await asyncio.gather(*(churn.work(requests, seed) for seed in range(CLIENTS)))
            print(
                f"{CLIENTS * requests} requests of {number} adapters on {PLACES} places: "
                f"{time.monotonic() - began:.1f} s, the longest {churn.longest:.1f} s"
            )
            assert churn.longest < HELD_SECONDS
            assert churn.most_listed == PLACES
            for weights in range(len(WEIGHTS)):
                # Whichever place it has, a name is answered by its own weights.
                texts = [churn.answers.get(name, set()) for name in churn.names[weights::3]]
                assert len(set[str]().union(*texts)) == 1
            await until(churn.billed, holds=lambda tokens: tokens == churn.tokens)


@pytest.mark.long
async def test_a_dedicated_adapter_answers_from_an_engine_of_its_own(database_url: str) -> None:
    with reachable_folder() as folder:
        async with churning(database_url, folder, 3) as churn, churn.front.http() as http:
            alone, shared, _ = churn.names
            client = churn.front.openai()
            for name in (alone, shared):
                await churn.ask(client, name)
            body = {"dedicated": True, "min_replicas": 1}
            (await http.put(f"/v1/servings/{alone}", json=body)).raise_for_status()

            async def places() -> dict[str, tuple[str, list[str]]]:
                found = (await http.get("/v1/engines")).json()["data"]
                return {one["model"]: (one["message"], one["adapters"]) for one in found}

            expected = {
                alone: ("serves this adapter alone", [alone]),
                "toy": ("", [shared]),
            }
            await until(places, 120, holds=lambda found: found == expected)
            for name in (alone, shared):
                await churn.ask(client, name)
            assert {len(texts) for texts in churn.answers.values()} == {1}
            assert churn.answers[alone] != churn.answers[shared]
            await until(churn.billed, holds=lambda tokens: tokens == churn.tokens)
