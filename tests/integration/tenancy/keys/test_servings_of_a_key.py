"""What a key for some models alone is told and may change of servings, prefetches and fetches."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import sqlalchemy as sa
from tests.integration.inference.test_inference import serving
from tests.integration.models.test_models import ADAPTER, FILES
from tests.support.services.platform import Platform, manifest

from windlass.api.clusters.v1 import clusters_pb2
from windlass.api.inference.v1 import inference_pb2 as pb
from windlass.api.models.v1 import models_pb2
from windlass.core.errors import from_rpc
from windlass.core.rpc.auth import Principal
from windlass.core.rpc.model_scope import ModelScope
from windlass.models.tables import fetches

TUNED, OTHER = "ft:tiny:a", "other"


@pytest.fixture
async def platform(database_url: str, tmp_path: Path) -> AsyncIterator[Platform]:
    async with serving(database_url, tmp_path) as (made, _):
        base = await made.import_model("tiny", FILES, **made.tenant())
        await made.import_model(OTHER, FILES, **made.tenant())
        await made.register_adapter(TUNED, base, ADAPTER)
        yield made


def _operator(platform: Platform) -> dict[str, Any]:
    caller = Principal(
        "org", "proj-a", permissions=frozenset({"clusters.write"}), models=ModelScope.of(["tiny"])
    )
    return {"metadata": (("windlass-principal", platform.gateway.sign_principal(caller)),)}


async def reason(call: Any) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    return from_rpc(caught.value).reason


async def test_servings_of_other_models_are_nobody_s_business(platform: Platform) -> None:
    on, key = platform.inference, platform.tenant(models=("tiny",))
    for model in ("tiny", OTHER):
        await on.PutServing(pb.PutServingRequest(model=model, min_replicas=1), **platform.tenant())
    listed = await on.ListServings(pb.ListServingsRequest(), **key)
    assert [one.model for one in listed.servings] == ["tiny"]
    assert (await on.GetServing(pb.GetServingRequest(model="tiny"), **key)).min_replicas == 1
    drafted = clusters_pb2.EngineArguments(draft_model=OTHER)
    for call in (
        on.PutServing(pb.PutServingRequest(model=OTHER), **key),
        on.PutServing(pb.PutServingRequest(model=TUNED), **key),
        on.PutServing(pb.PutServingRequest(model="tiny", engine="vllm", arguments=drafted), **key),
        on.GetServing(pb.GetServingRequest(model=OTHER), **key),
        on.DeleteServing(pb.DeleteServingRequest(model=OTHER), **key),
        on.PutPrefetch(pb.PutPrefetchRequest(model=OTHER), **key),
        on.AdoptModel(pb.AdoptModelRequest(stack="s", id=OTHER), **_operator(platform)),
    ):
        assert await reason(call) == "model_not_found"


async def test_engines_and_prefetches_are_listed_by_their_models(platform: Platform) -> None:
    on, everything = platform.inference, platform.tenant()
    cluster = await platform.live_cluster("east", keeps_models=True)
    for model in ("tiny", OTHER):
        await on.PutServing(pb.PutServingRequest(model=model, min_replicas=1), **everything)
        await on.PutPrefetch(pb.PutPrefetchRequest(model=model), **everything)
        await cluster.next_engine(model)
    for models in (("tiny",), (TUNED,), ()):
        key = platform.tenant(models=models)
        engines = (await on.ListEngines(pb.ListEnginesRequest(), **key)).engines
        found = (await on.ListPrefetches(pb.ListPrefetchesRequest(), **key)).prefetches
        expected = {"tiny", OTHER} & set(models or ("tiny", OTHER))
        assert {one.model for one in engines} == {one.model for one in found} == expected


async def test_imports_and_fetches_make_no_model_beyond_the_key(platform: Platform) -> None:
    on, key = platform.models, platform.tenant(models=("tiny*",))
    # Whether or not there is one of this name.
    for name in (OTHER, "new"):
        called = on.CreateImport(
            models_pb2.CreateImportRequest(id=name, manifest=manifest(FILES)), **key
        )
        assert await reason(called) == "model_not_found"
        fetch = models_pb2.CreateFetchRequest(source=f"hf://a/{name}")
        assert await reason(on.CreateFetch(fetch, **key)) == "model_not_found"
    begun = await on.CreateImport(
        models_pb2.CreateImportRequest(id="new", manifest=manifest(FILES)), **platform.tenant()
    )
    completed = models_pb2.CompleteImportRequest(import_id=begun.import_id)
    assert await reason(on.CompleteImport(completed, **key)) == "model_not_found"


async def test_fetches_of_other_models_are_not_seen(platform: Platform) -> None:
    on, key = platform.models, platform.tenant(models=("tiny*",))
    made = {}
    for name in ("tiny-two", "giant"):
        request = models_pb2.CreateFetchRequest(source=f"hf://a/{name}")
        made[name] = (await on.CreateFetch(request, **platform.tenant())).id
    listed = await on.ListFetches(models_pb2.ListFetchesRequest(), **key)
    assert [one.id for one in listed.fetches] == [made["tiny-two"]]
    await reason(on.GetFetch(models_pb2.GetFetchRequest(id=made["giant"]), **key))
    await reason(on.CancelFetch(models_pb2.CancelFetchRequest(id=made["giant"]), **key))
    async with platform.app.database.autocommit() as connection:
        state = sa.select(fetches.c.state).where(fetches.c.id == made["giant"])
        assert await connection.scalar(state) != "cancelled"
