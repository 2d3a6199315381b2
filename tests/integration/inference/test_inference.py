"""Inference through its RPCs, with real models and clusters beside it and the test as the agent."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx
import psycopg
import pytest
import sqlalchemy as sa
from tests.integration.models.test_models import ADAPTER, FILES, delete
from tests.support.services.platform import Platform, running_platform
from tests.support.waiting import stays, until

from windlass.api.clusters.v1 import clusters_pb2
from windlass.api.inference.v1 import inference_pb2 as pb
from windlass.core.config import Settings
from windlass.inference.store import engines, wants
from windlass.models.grants.store import GrantStore

RUNNING, FAILED = clusters_pb2.PHASE_RUNNING, clusters_pb2.PHASE_FAILED


class Routes:
    """State that a gateway gets by watch, and names that it looks up."""

    def __init__(self, platform: Platform):
        self.snapshots = 0
        self._url = platform.app.database.url.replace("+psycopg", "")
        self.loads: dict[str, pb.ReplicaLoad] = {}
        self._routes: dict[str, pb.Route] = {}
        self._call = platform.inference_internal.WatchRoutes(pb.WatchRoutesRequest())
        self._task = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        async for delta in self._call:
            if delta.snapshot:
                self._routes.clear()
                self.snapshots += 1
            for version_id in delta.deleted:
                del self._routes[version_id]
            for route in delta.routes:
                self._routes[route.version_id] = route
            self.loads |= {one.address: one for one in delta.loads}

    @property
    def known(self) -> dict[tuple[str, str], pb.Route]:
        """The route of every name; an empty one where nobody wants it."""
        with psycopg.connect(self._url) as connection:
            names = connection.execute(
                "SELECT project_id, name, version_id FROM models_models WHERE NOT deleted"
            ).fetchall()
        return {(row[0], row[1]): self._routes.get(row[2], pb.Route()) for row in names}

    def addresses(self, model: str, project: str = "proj-a") -> list[str]:
        route = self.known.get((project, model))
        return [endpoint.address for endpoint in route.endpoints] if route else []

    async def answers(self, model: str, address: str, project: str = "proj-a") -> None:
        await until(lambda: self.addresses(model, project) == [address])

    async def silent(self, model: str, project: str = "proj-a") -> None:
        await until(lambda: not self.addresses(model, project))

    async def close(self) -> None:
        self._call.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


@asynccontextmanager
async def serving(
    url: str, folder: Path, **inference: Any
) -> AsyncIterator[tuple[Platform, Routes]]:
    settings = Settings()
    settings.inference = settings.inference.model_copy(update=inference)
    async with running_platform(url, folder / "data", settings=settings) as platform:
        routes = Routes(platform)
        try:
            yield platform, routes
        finally:
            await routes.close()


@pytest.fixture
async def served(database_url: str, tmp_path: Path) -> AsyncIterator[tuple[Platform, Routes]]:
    async with serving(database_url, tmp_path) as pair:
        yield pair


async def want(platform: Platform, model: str, project: str = "proj-a") -> None:
    await platform.inference_internal.WantModel(
        pb.WantModelRequest(project_id=project, model=model)
    )


async def age(platform: Platform, model_version: str, seconds: float) -> None:
    """Lets time pass for a want."""
    async with platform.app.database.begin() as connection:
        past = {"used_at": wants.c.used_at - seconds, "since": wants.c.since - seconds}
        await connection.execute(
            wants.update().where(wants.c.version_id == model_version).values(past)
        )


async def uses(platform: Platform, version: str) -> list[str]:
    request = pb.FindUsesRequest(model_version_id=version)
    return list((await platform.inference_internal.FindUses(request)).engine_ids)


async def message(platform: Platform) -> str:
    """What the list says of the only engine."""
    call = platform.inference.ListEngines(pb.ListEnginesRequest(), **platform.tenant())
    (engine,) = (await call).engines
    return str(engine.message)


async def test_a_wanted_model_gets_an_engine_and_a_route(served: tuple[Platform, Routes]) -> None:
    platform, routes = served
    agent = await platform.live_cluster()
    model = await platform.import_model("tiny", FILES, **platform.tenant())
    await until(lambda: ("proj-a", "tiny") in routes.known)
    assert not routes.addresses("tiny")
    await want(platform, "tiny")
    engine = await agent.next_engine("tiny")
    assert engine.engine.model_version_id == model.version_id
    assert (engine.organization_id, engine.project_id) == ("org-of-proj-a", "proj-a")
    assert not routes.addresses("tiny"), "it does not answer yet"
    assert await message(platform) == "waiting for the cluster to start the engine"
    # What the agent downloads is what was imported.
    async with httpx.AsyncClient() as http:
        got = {file.path: (await http.get(file.url)).content for file in engine.engine.model_files}
    assert got == FILES
    address = await agent.run(engine)
    await routes.answers("tiny", address)
    assert await message(platform) == ""
    endpoint = routes.known["proj-a", "tiny"].endpoints[0]
    assert (endpoint.engine_id, endpoint.capabilities.context_length) == (engine.id, 512)
    for _ in range(3):
        await want(platform, "tiny")
    assert agent.workloads == {engine.id: engine}, "wanting again changes nothing"
    assert routes.snapshots == 1


async def test_an_adapter_answers_once_it_is_loaded(served: tuple[Platform, Routes]) -> None:
    platform, routes = served
    agent = await platform.live_cluster()
    base = await platform.import_model("tiny", FILES, **platform.tenant())
    adapter = await platform.register_adapter("ft:tiny:a", base, ADAPTER)
    await want(platform, "ft:tiny:a")
    engine = await agent.next_engine("tiny")
    assert [one.version_id for one in engine.engine.adapters] == [adapter.version_id]
    address = await agent.run(engine, adapters=False)
    await routes.answers("tiny", address)
    assert not routes.addresses("ft:tiny:a")
    await agent.run(engine)
    await routes.answers("ft:tiny:a", address)
    failed = clusters_pb2.LoadedAdapter(
        id="ft:tiny:a", version_id=adapter.version_id, error="wrong rank"
    )
    await agent.report(engine, RUNNING, endpoint=address, adapters=[failed])
    await routes.silent("ft:tiny:a")
    assert routes.known["proj-a", "ft:tiny:a"].error == "wrong rank"
    assert routes.addresses("tiny") == [address]


async def test_a_deleted_adapter_is_gone_at_once_and_unloaded(
    served: tuple[Platform, Routes],
) -> None:
    platform, routes = served
    agent = await platform.live_cluster()
    base = await platform.import_model("tiny", FILES, **platform.tenant())
    adapter = await platform.register_adapter("ft:tiny:a", base, ADAPTER)
    await want(platform, "tiny")
    await want(platform, "ft:tiny:a")
    engine = await agent.next_engine("tiny", lambda one: len(one.engine.adapters) == 1)
    address = await agent.run(engine)
    await routes.answers("ft:tiny:a", address)
    assert not await uses(platform, adapter.version_id)
    await delete(platform, "ft:tiny:a")
    await until(lambda: ("proj-a", "ft:tiny:a") not in routes.known)
    emptied = await agent.next_engine("tiny", lambda one: not one.engine.adapters)
    assert emptied.generation > engine.generation
    # The change of adapters did not take the base's endpoint away.
    assert routes.addresses("tiny") == [address]


async def test_a_granted_adapter_answers_its_guest_until_the_grant_ends(
    served: tuple[Platform, Routes],
) -> None:
    platform, routes = served
    agent = await platform.live_cluster()
    base = await platform.import_model("tiny", FILES, **platform.tenant())
    adapter = await platform.register_adapter("ft:tiny:a", base, ADAPTER)
    grants = GrantStore(platform.app.database)
    version = await grants.grantable("org-of-proj-a", "ft:tiny:a")
    (grant,) = await grants.create(version, ["proj-b"])
    platform.app.wake.touch("models")
    await until(lambda: ("proj-b", "ft:tiny:a") in routes.known)
    # The guest's wish starts the base, which is its host's alone, with the adapter on it.
    await want(platform, "ft:tiny:a", "proj-b")
    engine = await agent.next_engine("tiny", lambda one: len(one.engine.adapters) == 1)
    assert (engine.project_id, engine.engine.adapters[0].version_id) == (
        "proj-a", adapter.version_id,
    )  # fmt: skip
    address = await agent.run(engine)
    await routes.answers("ft:tiny:a", address, "proj-b")
    await routes.answers("ft:tiny:a", address)
    assert not routes.addresses("tiny", "proj-b")
    await grants.delete(version, grant.id)
    platform.app.wake.touch("models")
    await until(lambda: ("proj-b", "ft:tiny:a") not in routes.known)
    assert routes.addresses("ft:tiny:a") == [address]


async def test_an_engine_in_use_protects_its_model_and_an_idle_one_does_not(
    served: tuple[Platform, Routes],
) -> None:
    platform, routes = served
    agent = await platform.live_cluster()
    base = await platform.import_model("tiny", FILES, **platform.tenant())
    await want(platform, "tiny")
    engine = await agent.next_engine("tiny")
    await agent.run(engine)
    assert await uses(platform, base.version_id) == [engine.id]
    await age(platform, base.version_id, 61)
    assert not await uses(platform, base.version_id)
    await delete(platform, "tiny")
    await until(lambda: not agent.engines())
    await until(lambda: ("proj-a", "tiny") not in routes.known)


async def test_an_idle_engine_is_stopped(database_url: str, tmp_path: Path) -> None:
    async with serving(database_url, tmp_path, idle_seconds=30) as (platform, routes):
        agent = await platform.live_cluster()
        base = await platform.import_model("tiny", FILES, **platform.tenant())
        await want(platform, "tiny")
        engine = await agent.next_engine("tiny")
        await routes.answers("tiny", await agent.run(engine))
        await age(platform, base.version_id, 31)
        await until(lambda: not agent.engines())
        await routes.silent("tiny")
        assert not routes.known["proj-a", "tiny"].error
        # And begins again when it is wanted.
        await want(platform, "tiny")
        assert (await agent.next_engine("tiny")).id != engine.id


async def test_the_engine_wanted_longest_ago_makes_room(database_url: str, tmp_path: Path) -> None:
    async with serving(database_url, tmp_path, max_engines=2) as (platform, routes):
        agent = await platform.live_cluster()
        versions = {}
        for name in ("one", "two", "three"):
            files = FILES | {"README.md": name.encode()}
            made = await platform.import_model(name, files, **platform.tenant())
            versions[name] = made.version_id
        for name in ("one", "two"):
            await want(platform, name)
            await routes.answers(name, await agent.run(await agent.next_engine(name)))
        # Both were wanted a moment ago: nobody is thrown out of an engine in use.
        for name in ("one", "two", "three"):
            await want(platform, name)
        await age(platform, versions["three"], 25)
        await want(platform, "three")
        await until(lambda: "in use" in routes.known["proj-a", "three"].error)
        for name in ("one", "two"):
            await want(platform, name)
        assert {one.engine.model for one in agent.engines()} == {"one", "two"}
        await age(platform, versions["two"], 20)
        await until(lambda: {one.engine.model for one in agent.engines()} == {"one", "three"})
        await until(lambda: not routes.known["proj-a", "three"].error)


async def test_adapters_are_bounded_by_open_requests_and_last_use(
    database_url: str, tmp_path: Path
) -> None:
    async with serving(database_url, tmp_path, max_adapters=2) as (platform, _):
        agent = await platform.live_cluster()
        base = await platform.import_model("tiny", FILES, **platform.tenant())
        names = [f"ft:tiny:{letter}" for letter in "abc"]
        made = [await platform.register_adapter(name, base, ADAPTER) for name in names]

        def loaded(one: clusters_pb2.Workload) -> list[str]:
            return [adapter.id for adapter in one.engine.adapters]

        for name in names[:2]:
            await want(platform, name)
        engine = await agent.next_engine("tiny", lambda one: set(loaded(one)) == set(names[:2]))
        await agent.run(engine)

        async def replaced() -> clusters_pb2.Workload | None:
            # One that was used before has a request open, and one is held for the third.
            for gateway, version in (("gw-1", made[0].version_id), ("gw-2", made[2].version_id)):
                request = pb.ReportLoadRequest(reporter=gateway, adapter_requests={version: 1})
                await platform.inference_internal.ReportLoad(request)
            await want(platform, "ft:tiny:c")
            found = [one for one in agent.engines("tiny") if "ft:tiny:c" in loaded(one)]
            return found[0] if found else None

        engine = await until(replaced, every=0.5)
        assert loaded(engine) == ["ft:tiny:c", "ft:tiny:a"], "the least needed is last, b is gone"
        assert engine.engine.max_adapters == 2


async def test_a_failed_start_is_told_and_tried_again_when_wanted(
    served: tuple[Platform, Routes],
) -> None:
    platform, routes = served
    agent = await platform.live_cluster()
    base = await platform.import_model("tiny", FILES, **platform.tenant())
    await want(platform, "tiny")
    engine = await agent.next_engine("tiny")
    await agent.report(engine, FAILED, reason="ProcessExited", message="bad weights")
    said = f"bad weights (engine {engine.id})"
    await until(lambda: routes.known["proj-a", "tiny"].error == said)
    assert (await message(platform)).startswith(f"{said}; a request starts it again in ")
    assert agent.workloads[engine.id].generation == engine.generation, "not at once"
    # Nobody wanted it since it failed.
    await age(platform, base.version_id, 10)
    await rewind_failures(platform, 6)
    platform.app.wake.touch("inference")
    await stays(lambda: agent.workloads[engine.id].generation == engine.generation)
    await want(platform, "tiny")
    again = await agent.next_engine("tiny", lambda one: one.generation > engine.generation)
    await until(lambda: not routes.known["proj-a", "tiny"].error)
    await routes.answers("tiny", await agent.run(again))


async def rewind_failures(platform: Platform, seconds: float) -> None:
    async with platform.app.database.begin() as connection:
        past = {
            "failed_at": engines.c.failed_at - seconds,
            "retry_at": engines.c.retry_at - seconds,
        }
        await connection.execute(engines.update().values(past))


async def test_a_lost_cluster_loses_its_routes_and_another_takes_over(
    served: tuple[Platform, Routes],
) -> None:
    platform, routes = served
    first = await platform.live_cluster("east")
    await platform.import_model("tiny", FILES, **platform.tenant())
    await want(platform, "tiny")
    address = await first.run(await first.next_engine("tiny"))
    await routes.answers("tiny", address)
    await first.leave()
    await forget_contact(platform, first.cluster_id)
    await routes.silent("tiny")
    second = await platform.live_cluster("west")
    await want(platform, "tiny")
    await routes.answers("tiny", await second.run(await second.next_engine("tiny")))


async def forget_contact(platform: Platform, cluster_id: str) -> None:
    statement = "UPDATE clusters_clusters SET last_seen_at = now() - interval '1 hour' WHERE id=:id"
    async with platform.app.database.begin() as connection:
        await connection.execute(sa.text(statement), {"id": cluster_id})


async def test_without_a_cluster_the_route_says_why_after_a_while(
    served: tuple[Platform, Routes],
) -> None:
    platform, routes = served
    await platform.live_cluster("gpuless", engines=("vllm",))
    base = await platform.import_model("tiny", FILES, **platform.tenant())
    await want(platform, "tiny")
    await until(lambda: ("proj-a", "tiny") in routes.known)
    assert not routes.known["proj-a", "tiny"].error
    await age(platform, base.version_id, 25)
    await until(lambda: "builtin" in routes.known["proj-a", "tiny"].error)
    agent = await platform.live_cluster("right")
    await routes.answers("tiny", await agent.run(await agent.next_engine("tiny")))


async def test_urls_are_renewed_for_an_engine_that_still_needs_them(
    served: tuple[Platform, Routes],
) -> None:
    platform, routes = served
    agent = await platform.live_cluster()
    await platform.import_model("tiny", FILES, **platform.tenant())
    await want(platform, "tiny")
    engine = await agent.next_engine("tiny")
    half = platform.app.settings.objects.presign_seconds / 2 + 1
    await make_urls_older(platform, half)
    renewed = await agent.next_engine("tiny", lambda one: one.generation > engine.generation)
    assert renewed.engine.model_files[0].url
    await routes.answers("tiny", await agent.run(renewed))
    # One that runs and has everything is left alone.
    await make_urls_older(platform, half)
    await want(platform, "tiny")
    await stays(lambda: agent.workloads[engine.id].generation == renewed.generation)


async def make_urls_older(platform: Platform, seconds: float) -> None:
    async with platform.app.database.begin() as connection:
        await connection.execute(engines.update().values(urls_at=engines.c.urls_at - seconds))
    platform.app.wake.touch("inference")


async def test_another_project_has_no_route_no_engine_and_no_wish(
    served: tuple[Platform, Routes],
) -> None:
    platform, routes = served
    agent = await platform.live_cluster()
    admin = platform.tenant("proj-x", platform=True)
    shared = await platform.import_model("shared", FILES, is_global=True, **admin)
    own = await platform.import_model(
        "own", FILES | {"README.md": b"a"}, **platform.tenant("proj-a")
    )
    await platform.register_adapter("ft:shared:a", shared, ADAPTER, project="proj-a")
    for name in ("own", "ft:shared:a"):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await want(platform, name, "proj-b")
        assert caught.value.code() == grpc.StatusCode.NOT_FOUND
        await want(platform, name, "proj-a")
    for model in ("own", "shared"):
        await agent.run(await agent.next_engine(model))
    await until(lambda: routes.addresses("ft:shared:a") and routes.addresses("own"))
    await until(lambda: routes.addresses("shared", ""))
    assert not [key for key in routes.known if key[0] == "proj-b"]
    seen = {}
    for project in ("proj-a", "proj-b"):
        answer = await platform.inference.ListEngines(
            pb.ListEnginesRequest(), **platform.tenant(project)
        )
        seen[project] = {engine.model: list(engine.adapters) for engine in answer.engines}
    assert seen["proj-a"] == {"own": [], "shared": ["ft:shared:a"]}
    assert seen["proj-b"] == {"shared": []}
    assert own.project_id == "proj-a"


async def test_two_replicas_start_one_engine(database_url: str, tmp_path: Path) -> None:
    """Both plan at once for many models; the second reads what the first put."""
    async with serving(database_url, tmp_path) as (platform, routes):
        agent = await platform.live_cluster()
        names = ["one", "two", "three"]
        for name in names:
            files = FILES | {"README.md": name.encode()}
            await platform.import_model(name, files, **platform.tenant())
        settings = Settings(
            peers={
                name: platform.app.clients.address("models")
                for name in ("models", "clusters", "sessions", "users", "usage")
            }
        )
        key = tmp_path / "data" / "keys" / "master.key"
        settings.master_key = settings.master_key.model_copy(update={"file": key})
        # Its URLs lead to the same store.
        settings.objects = platform.app.settings.objects
        settings.http = settings.http.model_copy(
            update={"public_url": platform.app.settings.public_url, "port": 0}
        )
        async with running_platform(
            database_url, tmp_path / "other", services=("inference",), settings=settings
        ) as other:
            theirs = Routes(other)
            await until(lambda: len(theirs.known) == 3)
            wishes = [want(one, name) for name in names for one in (platform, other)] * 1
            await asyncio.gather(*wishes)
            found = [await agent.next_engine(name) for name in names]
            await until(lambda: len(agent.engines()) == 3)
            for engine in found:
                address = await agent.run(engine)
                # Each replica's gateways hear of it.
                await routes.answers(engine.engine.model, address)
                await theirs.answers(engine.engine.model, address)
            async with platform.app.database.autocommit() as connection:
                rows = (await connection.execute(engines.select())).all()
            assert sorted(row.model for row in rows) == sorted(names)
            assert len(agent.workloads) == 3
            await theirs.close()
