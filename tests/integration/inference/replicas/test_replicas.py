"""Engines that run whether or not somebody asks, through the RPCs that set them."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.integration.inference.test_inference import RUNNING, Routes, age, serving, want
from tests.integration.models.test_models import ADAPTER, FILES, delete
from tests.support.services.platform import Platform
from tests.support.waiting import stays, until

from windlass.api.clusters.v1 import clusters_pb2
from windlass.api.clusters.v1.clusters_pb2_grpc import ClustersServiceStub
from windlass.api.inference.v1 import inference_pb2 as pb
from windlass.core.config import QuotasSection
from windlass.core.errors import InvalidArgument, from_rpc
from windlass.core.quotas import Quotas
from windlass.core.rpc.auth import Principal
from windlass.users.domain import PROJECTS_TOPIC
from windlass.users.leaving.store import ErasureStore
from windlass.users.store import TenantStore

Served = tuple[Platform, Routes]


@pytest.fixture
async def served(database_url: str, tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(database_url, tmp_path, max_engines=6) as pair:
        yield pair


async def put(on: Platform, model: str, replicas: int, **who: Any) -> pb.Serving:
    request = pb.PutServingRequest(model=model, min_replicas=replicas)
    made: pb.Serving = await on.inference.PutServing(request, **on.tenant(**who))
    return made


async def get(platform: Platform, model: str) -> pb.Serving:
    request = pb.GetServingRequest(model=model)
    found: pb.Serving = await platform.inference.GetServing(request, **platform.tenant())
    return found


async def refusal(on: Platform, model: str, replicas: int, **who: Any) -> tuple[str, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await put(on, model, replicas, **who)
    error = from_rpc(caught.value)
    return error.reason, error.message


async def test_replicas_are_spread_and_all_of_them_answer(served: Served) -> None:
    platform, routes = served
    east, west = [await platform.live_cluster(name) for name in ("east", "west")]
    await platform.import_model("tiny", FILES, **platform.tenant())
    made = await put(platform, "tiny", 2)
    assert (made.model, made.min_replicas, made.ready_replicas) == ("tiny", 2, 0)
    # Or for the cluster, which may have been chosen by then.
    assert made.message.startswith("waiting for ")
    here, there = await east.next_engine("tiny"), await west.next_engine("tiny")
    first = await east.run(here)
    await routes.answers("tiny", first)
    one = await get(platform, "tiny")
    assert (one.ready_replicas, one.message) == (1, "waiting for the cluster to start the engine")
    await west.report(there, RUNNING, endpoint="unix:///run/e-there/s")
    await until(lambda: len(routes.addresses("tiny")) == 2)
    both = await get(platform, "tiny")
    assert (both.ready_replicas, both.message) == (2, "")
    engines = await platform.inference.ListEngines(pb.ListEnginesRequest(), **platform.tenant())
    assert {one.cluster_id for one in engines.engines} == {east.cluster_id, west.cluster_id}
    assert {one.replica for one in engines.engines} == {0, 1}
    # Nobody has asked for it for long, and it runs all the same.
    await stays(lambda: len(routes.addresses("tiny")) == 2)


async def test_one_starts_where_its_files_are_and_says_so(served: Served) -> None:
    platform, _ = served
    east, west = [await platform.live_cluster(name) for name in ("east", "west")]
    model = await platform.import_model("tiny", FILES, **platform.tenant())
    await west.hold("../etc", model.version_id)
    await want(platform, "tiny")
    await west.next_engine("tiny")
    assert not east.engines()
    answer = await platform.inference.ListEngines(pb.ListEnginesRequest(), **platform.tenant())
    assert [one.placement_reason for one in answer.engines] == ["has the model's files"]
    clusters = platform.app.clients.stub(ClustersServiceStub)
    for permissions, versions in (
        (("clusters.read", "platform.read"), [model.version_id]),
        # They may be of any tenant.
        (("clusters.read",), []),
    ):
        principal = Principal("org", "proj-a", permissions=frozenset(permissions))
        caller = (("windlass-principal", platform.gateway.sign_principal(principal)),)
        told = await clusters.ListClusters(clusters_pb2.ListClustersRequest(), metadata=caller)
        (there,) = (one for one in told.clusters if one.id == west.cluster_id)
        assert list(there.capacity.model_versions) == versions
        request = clusters_pb2.GetClusterRequest(cluster_id=west.cluster_id)
        found = await clusters.GetCluster(request, metadata=caller)
        assert list(found.capacity.model_versions) == versions


async def test_an_adapter_has_engines_of_its_own_where_asked(served: Served) -> None:
    platform, routes = served
    east = await platform.live_cluster()
    base = await platform.import_model("tiny", FILES, **platform.tenant())
    await platform.register_adapter("ft:tiny:a", base, ADAPTER)

    async def dedicate(model: str, **fields: Any) -> pb.Serving:
        request = pb.PutServingRequest(model=model, dedicated=True, **fields)
        made: pb.Serving = await platform.inference.PutServing(request, **platform.tenant())
        return made

    for model, fields, param, said in (
        ("tiny", {}, "dedicated", "tiny is no adapter of another model"),
        ("ft:tiny:a", {"engine": "vllm"}, "engine", "its own engines run like those"),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await dedicate(model, **fields)
        error = from_rpc(caught.value)
        assert isinstance(error, InvalidArgument)
        assert (error.param, said in error.message) == (param, True)
    made = await dedicate("ft:tiny:a", min_replicas=1, max_replicas=2)
    assert (made.dedicated, made.min_replicas, made.max_replicas) == (True, 1, 2)
    own = await east.next_engine("tiny", lambda one: one.engine.dedicated)
    assert [one.id for one in own.engine.adapters] == ["ft:tiny:a"]
    assert (own.engine.model_version_id, own.engine.max_adapters) == (base.version_id, 1)
    await want(platform, "tiny")
    shared = await east.next_engine("tiny", lambda one: not one.engine.dedicated)
    assert not shared.engine.adapters
    await east.run(own, adapters=False)
    await stays(lambda: not routes.addresses("ft:tiny:a"))
    here, there = await east.run(own), await east.run(shared)
    await routes.answers("ft:tiny:a", here)
    await routes.answers("tiny", there)
    answer = await platform.inference.ListEngines(pb.ListEnginesRequest(), **platform.tenant())
    assert {one.model: (one.message, list(one.adapters)) for one in answer.engines} == {
        "ft:tiny:a": ("serves this adapter alone", ["ft:tiny:a"]),
        "tiny": ("", []),
    }


async def test_fewer_and_none_end_the_others(served: Served) -> None:
    platform, routes = served
    east = await platform.live_cluster()
    model = await platform.import_model("tiny", FILES, **platform.tenant())
    await want(platform, "tiny")
    await put(platform, "tiny", 3)
    await until(lambda: len(east.engines("tiny")) == 3)
    await put(platform, "tiny", 1)
    await until(lambda: len(east.engines("tiny")) == 1)
    (last,) = east.engines("tiny")
    await routes.answers("tiny", await east.run(last))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await delete(platform, "tiny")
    assert "windlass models deactivate" in from_rpc(caught.value).message
    await age(platform, model.version_id, 120)
    request = pb.DeleteServingRequest(model="tiny")
    await platform.inference.DeleteServing(request, **platform.tenant())
    await until(lambda: not east.engines())
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await get(platform, "tiny")
    assert from_rpc(caught.value).reason == "serving_not_found"
    # A request starts one again.
    await want(platform, "tiny")
    await east.next_engine("tiny")


async def test_an_adapter_that_is_served_is_on_every_engine(served: Served) -> None:
    platform, routes = served
    east = await platform.live_cluster()
    base = await platform.import_model("tiny", FILES, **platform.tenant())
    await platform.register_adapter("ft:tiny:a", base, ADAPTER)
    await put(platform, "ft:tiny:a", 2)
    await until(lambda: len(east.engines("tiny")) == 2)
    for engine in east.engines("tiny"):
        await east.run(engine)
    await until(lambda: len(routes.addresses("ft:tiny:a")) == 2)
    listed = await platform.inference.ListServings(pb.ListServingsRequest(), **platform.tenant())
    assert [(one.model, one.ready_replicas) for one in listed.servings] == [("ft:tiny:a", 2)]


async def test_a_pinned_engine_outlasts_its_wish(database_url: str, tmp_path: Path) -> None:
    async with serving(database_url, tmp_path, idle_seconds=30) as (platform, _):
        east = await platform.live_cluster()
        model = await platform.import_model("tiny", FILES, **platform.tenant())
        await want(platform, "tiny")
        await put(platform, "tiny", 1)
        await east.next_engine("tiny")
        await age(platform, model.version_id, 60)
        platform.app.wake.touch("inference")
        await stays(lambda: len(east.engines("tiny")) == 1)


async def test_what_cannot_be_is_refused_with_the_field(served: Served) -> None:
    platform, _ = served
    tenant = platform.tenant()
    await platform.import_model("tiny", FILES, **tenant)
    assert (await refusal(platform, "never", 1))[0] == "model_not_found"
    for number in (-1, 65):
        assert "0 to 64" in (await refusal(platform, "tiny", number))[1]
    await platform.import_model("other", FILES, **tenant)
    await put(platform, "other", 2)
    # The project's quota is 4, of all of its models together.
    reason, message = await refusal(platform, "tiny", 3)
    assert (reason, "would have 5 engines" in message) == ("quota_exceeded", True)
    assert (await put(platform, "tiny", 2)).min_replicas == 2
    assert (await put(platform, "tiny", 1)).min_replicas == 1, "less than it has itself"
    assert (await refusal(platform, "tiny", 1, project="proj-b"))[0] == "model_not_found"


async def test_only_operators_set_how_a_model_for_everyone_is_served(served: Served) -> None:
    platform, _ = served
    operator = platform.tenant(platform=True)
    base = await platform.import_model("shared", FILES, is_global=True, **operator)
    reason, message = await refusal(platform, "shared", 1)
    assert (reason, "administrators" in message) == ("insufficient_permissions", True)
    await platform.register_adapter("ft:shared:a", base, ADAPTER)
    assert "adapter of shared" in (await refusal(platform, "ft:shared:a", 1))[1]
    assert (await put(platform, "ft:shared:a", 1, platform=True)).min_replicas == 1
    # More than a project may have: it is nobody's. No more than the installation runs.
    assert (await put(platform, "shared", 5, platform=True)).min_replicas == 5
    assert "at most 6" in (await refusal(platform, "shared", 7, platform=True))[1]
    assert (await get(platform, "shared")).min_replicas == 5
    request = pb.DeleteServingRequest(model="shared")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await platform.inference.DeleteServing(request, **platform.tenant())
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    # A name means the project's own model first, which has no serving.
    await platform.import_model("shared", FILES, **platform.tenant())
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await platform.inference.DeleteServing(request, **operator)
    assert from_rpc(caught.value).reason == "serving_not_found"
    await delete(platform, "shared")
    await platform.inference.DeleteServing(request, **operator)
    listed = await platform.inference.ListServings(pb.ListServingsRequest(), **platform.tenant())
    assert [one.model for one in listed.servings] == ["ft:shared:a"]


async def test_the_engines_of_an_archived_project_end(served: Served) -> None:
    platform, _ = served
    east = await platform.live_cluster()
    users = TenantStore(platform.app.database, Quotas(QuotasSection()))
    organization = (await users.create_organization("O", owner="ann")).id
    project = (await users.create_project(organization, "P", owner="ann")).id
    theirs: dict[str, Any] = {"project": project, "organization": organization}
    await platform.import_model("theirs", FILES, **platform.tenant(**theirs))
    await platform.import_model("tiny", FILES, **platform.tenant())
    await put(platform, "theirs", 1, **theirs)
    await put(platform, "tiny", 1)
    await until(lambda: len(east.engines()) == 2)
    await users.archive_project(organization, project)
    platform.app.wake.touch(PROJECTS_TOPIC)
    await until(lambda: [one.engine.model for one in east.engines()] == ["tiny"])


async def test_how_a_model_was_served_outlives_a_deletion_that_is_undone(served: Served) -> None:
    platform, _ = served
    east = await platform.live_cluster()
    database = platform.app.database
    users = TenantStore(database, Quotas(QuotasSection()))
    leaving = ErasureStore(database, grace_seconds=3600)
    organization = (await users.create_organization("O", owner="ann")).id
    project = (await users.create_project(organization, "P", owner="ann")).id
    theirs: dict[str, Any] = {"project": project, "organization": organization}
    await platform.import_model("theirs", FILES, **platform.tenant(**theirs))
    await put(platform, "theirs", 1, **theirs)
    await until(lambda: len(east.engines()) == 1)
    await leaving.delete_project(organization, project, by="ann")
    platform.app.wake.touch(PROJECTS_TOPIC)
    await until(lambda: not east.engines())
    await leaving.undo(organization, project)
    await until(lambda: [one.engine.model for one in east.engines()] == ["theirs"])
