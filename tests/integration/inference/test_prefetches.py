"""Prefetches through their RPCs, with real models and clusters, and the test as the agent."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
import sqlalchemy as sa
from tests.integration.inference.test_inference import serving
from tests.integration.models.test_models import ADAPTER, FILES, delete
from tests.support.agents.wire_agent import WireAgent
from tests.support.services.platform import Platform
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2
from windlass.api.clusters.v1.clusters_pb2_grpc import ClustersServiceStub
from windlass.api.inference.v1 import inference_pb2 as pb
from windlass.core.errors import from_rpc
from windlass.core.quotas import Quota, set_bound
from windlass.core.rpc.auth import Principal
from windlass.inference.loads import CLOCK
from windlass.inference.prefetches import store
from windlass.inference.prefetches.store import prefetches

READY, FAILED = pb.PREFETCH_STATE_READY, pb.PREFETCH_STATE_FAILED
SIZE = sum(map(len, FILES.values()))


@pytest.fixture
async def platform(database_url: str, tmp_path: Path) -> AsyncIterator[Platform]:
    async with serving(database_url, tmp_path) as (made, _):
        await made.import_model("tiny", FILES, **made.tenant())
        yield made


async def put(on: Platform, model: str, *clusters: str, **who: Any) -> list[pb.Prefetch]:
    request = pb.PutPrefetchRequest(model=model, cluster_ids=clusters)
    return list((await on.inference.PutPrefetch(request, **on.tenant(**who))).prefetches)


async def listed(on: Platform, **who: Any) -> list[pb.Prefetch]:
    call = on.inference.ListPrefetches(pb.ListPrefetchesRequest(), **on.tenant(**who))
    return list((await call).prefetches)


async def refusal(on: Platform, model: str, *clusters: str, **who: Any) -> tuple[str, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await put(on, model, *clusters, **who)
    error = from_rpc(caught.value)
    return error.reason, error.message


async def told(agent: WireAgent, identifier: str, generation: int) -> clusters_pb2.Workload:
    def there() -> clusters_pb2.Workload | None:
        found = agent.workloads.get(identifier)
        return found if found is not None and found.generation == generation else None

    return await until(there)


async def state(on: Platform, expected: int) -> pb.Prefetch:
    async def there() -> pb.Prefetch | None:
        (found,) = await listed(on)
        return found if found.state == expected else None

    return await until(there)


async def change(on: Platform, **values: Any) -> None:
    async with on.app.database.begin() as connection:
        await connection.execute(prefetches.update().values(**values))


async def test_a_cluster_brings_the_files_that_were_imported(platform: Platform) -> None:
    east = await platform.live_cluster(keeps_models=True)
    await platform.live_cluster("west")
    # Of the clusters, the one that keeps models.
    (begun,) = await put(platform, "tiny")
    assert (begun.model, begun.cluster_id, begun.bytes) == ("tiny", east.cluster_id, SIZE)
    assert begun.state == pb.PREFETCH_STATE_WAITING
    workload = await told(east, begun.id, 1)
    assert workload.desired == clusters_pb2.DESIRED_STATE_RUNNING
    async with httpx.AsyncClient() as http:
        got = {one.path: (await http.get(one.url)).content for one in workload.prefetch.files}
    assert got == FILES
    await east.report(workload, clusters_pb2.PHASE_STARTING, message="Downloading")
    assert (await state(platform, pb.PREFETCH_STATE_RUNNING)).message == "Downloading"
    # The same wish is the same prefetch.
    (again,) = await put(platform, "tiny", east.cluster_id)
    assert again.id == begun.id
    await east.report(workload, clusters_pb2.PHASE_SUCCEEDED)
    done = await state(platform, READY)
    assert done.finished_at >= done.created_at > 0
    # The cluster need not remember it, and may be asked anew.
    forgotten = await told(east, begun.id, 2)
    assert forgotten.desired == clusters_pb2.DESIRED_STATE_DELETED
    (anew,) = await put(platform, "tiny")
    assert (anew.id, anew.state) == (begun.id, pb.PREFETCH_STATE_WAITING)
    assert (await told(east, begun.id, 3)).desired == clusters_pb2.DESIRED_STATE_RUNNING
    assert await listed(platform, project="proj-b") == []


async def test_what_cannot_be_brought_says_why(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    none = "No cluster that is connected runs engines of the model and keeps models."
    assert await refusal(platform, "tiny") == ("models_not_kept", none)
    west = await platform.live_cluster("west")
    reason, message = await refusal(platform, "tiny", west.cluster_id)
    assert (reason, "keeps no models" in message) == ("models_not_kept", True)
    reason, message = await refusal(platform, "tiny", "clu_none")
    assert (reason, "is not connected" in message) == ("models_not_kept", True)
    east = await platform.live_cluster("east", keeps_models=True)
    base = await platform.import_model(
        "all", FILES, is_global=True, **platform.tenant(platform=True)
    )
    await platform.register_adapter("ft:all:a", base, ADAPTER)
    _, message = await refusal(platform, "ft:all:a")
    assert "prefetch its base, all" in message
    assert "platform administrator" in (await refusal(platform, "all"))[1]
    (made,) = await put(platform, "all", platform=True)
    assert made.cluster_id == east.cluster_id
    assert (await refusal(platform, "tiny", project="proj-b"))[0] == "model_not_found"
    await change(platform, state="ready", finished_at=1.0)
    # Bounds hold for all of a request.
    north = await platform.live_cluster("north", keeps_models=True)
    monkeypatch.setattr(store, "MAX_OPEN", 1)
    both = east.cluster_id, north.cluster_id
    reason, message = await refusal(platform, "tiny", *both)
    assert (reason, "would have 2 unfinished" in message) == ("too_many_prefetches", True)
    async with platform.app.database.begin() as connection:
        await set_bound(connection, "proj-a", Quota.FETCHED_BYTES, SIZE)
    reason, message = await refusal(platform, "tiny", *both)
    assert reason == "quota_exceeded"
    assert f"would have {2 * SIZE} bytes fetched in 24 hours; its quota is {SIZE}" in message
    assert [one.id for one in await listed(platform)] == [made.id]


async def test_all_clusters_are_as_many_as_a_project_may_have(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("east", "west", "north"):
        await platform.live_cluster(name, keeps_models=True)
    monkeypatch.setattr(store, "MAX_OPEN", 2)
    begun = await put(platform, "tiny")
    assert len(begun) == 2
    # The same wish is the same prefetches.
    assert await put(platform, "tiny") == begun
    await platform.import_model("other", FILES, **platform.tenant())
    assert (await refusal(platform, "other"))[0] == "too_many_prefetches"


async def test_each_try_counts_in_the_quota(platform: Platform) -> None:
    await platform.live_cluster("east", keeps_models=True)
    async with platform.app.database.begin() as connection:
        await set_bound(connection, "proj-a", Quota.FETCHED_BYTES, 2 * SIZE)
    for _ in range(2):
        await put(platform, "tiny")
        # One that is open is the same.
        await put(platform, "tiny")
        await change(platform, state="failed", finished_at=CLOCK)
    reason, message = await refusal(platform, "tiny")
    assert (reason, f"would have {3 * SIZE} bytes" in message) == ("quota_exceeded", True)
    # A day later it counts from the beginning.
    await change(platform, counted_at=1.0)
    await put(platform, "tiny")


async def test_a_prefetch_fails_in_words(platform: Platform) -> None:
    east = await platform.live_cluster(keeps_models=True)
    (begun,) = await put(platform, "tiny")
    workload = await told(east, begun.id, 1)
    # URLs are made anew before they end.
    await change(platform, urls_at=sa.text("urls_at - 1000000"))
    renewed = await told(east, begun.id, 2)
    assert renewed.prefetch.files[0].url != workload.prefetch.files[0].url
    message = "The model's 9 GiB do not fit: 1 GiB are free, and models in use take 3 GiB."
    await east.report(renewed, clusters_pb2.PHASE_FAILED, message=message)
    assert (await state(platform, FAILED)).message == message
    await told(east, begun.id, 3)
    # What it is about may go.
    await change(platform, state="open", created_at=CLOCK, urls_at=CLOCK, generation=4)
    await delete(platform, "tiny")
    deleted = "The model was deleted."
    await until(lambda: said(platform, deleted))
    await told(east, begun.id, 5)
    await platform.import_model("other", FILES, **platform.tenant())
    await change(platform, finished_at=1.0)
    (second,) = await put(platform, "other")
    # A week after its end, one is forgotten with the next wish.
    assert [one.id for one in await listed(platform)] == [second.id]
    await told(east, second.id, 1)
    operator = Principal("org", permissions=frozenset({"clusters.write"}))
    signed = platform.gateway.sign_principal(operator)
    await platform.app.clients.stub(ClustersServiceStub).UnregisterCluster(
        clusters_pb2.UnregisterClusterRequest(cluster_id=east.cluster_id),
        metadata=(("windlass-principal", signed),),
    )
    unregistered = "The cluster was unregistered."
    await until(lambda: said(platform, unregistered))
    await change(platform, state="open", error="", generation=9)
    await until(lambda: said(platform, unregistered))


async def said(on: Platform, message: str) -> bool:
    return [one.message for one in await listed(on)] == [message]
