"""What was probably meant: never another tenant's name, and none for who may not list."""

from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from tests.support.factories.feather import FEATHER
from tests.support.services.platform import Platform, running_platform

from windlass.api.models.v1 import models_pb2 as pb
from windlass.core.errors import from_rpc


@pytest.fixture
async def platform(database_url: str, tmp_path: Path) -> AsyncIterator[Platform]:
    async with running_platform(database_url, tmp_path / "data") as platform:
        await platform.import_model("harbor-lights", FEATHER, **platform.tenant("proj-a"))
        yield platform


async def refusal(platform: Platform, project: str, name: str, *, suggest: bool) -> str:
    request = pb.ResolveModelRequest(project_id=project, id=name, suggest=suggest)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await platform.models_internal.ResolveModel(request)
    assert from_rpc(caught.value).reason == "model_not_found"
    return from_rpc(caught.value).message


async def test_a_name_much_like_it_is_named_to_its_own_project(platform: Platform) -> None:
    said = await refusal(platform, "proj-a", "harbour-light", suggest=True)
    assert said.endswith("Did you mean 'harbor-lights'?")
    assert "Did you mean" not in await refusal(platform, "proj-a", "zzzz", suggest=True)
    assert "harbor-lights" not in await refusal(platform, "proj-b", "harbour-light", suggest=True)
    assert "harbor-lights" not in await refusal(platform, "proj-a", "harbour-light", suggest=False)


async def test_tenants_are_told_too(platform: Platform) -> None:
    request = pb.GetModelRequest(id="Harbor Lights")
    for project, is_told in (("proj-a", True), ("proj-b", False)):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await platform.models.GetModel(request, **platform.tenant(project))
        assert ("Did you mean" in from_rpc(caught.value).message) is is_told
