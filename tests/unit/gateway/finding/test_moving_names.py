"""A request that is held for a version of a name follows it to the next one."""

import asyncio
from typing import Any

import grpc
import pytest
from tests.support.waiting import until
from tests.unit.gateway.finding.test_kinds_of_engines import Services, route

from windlass.api.inference.v1 import inference_pb2 as pb
from windlass.api.models.v1 import models_pb2
from windlass.gateway.errors import HttpError
from windlass.gateway.inference.routes import EngineEndpoint

UNKNOWN, AWAY = grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNAVAILABLE


class MovingNames(Services):
    """The name `m`, which means what `means` says."""

    def __init__(self) -> None:
        super().__init__()
        self.means: str | grpc.StatusCode = "old"
        self.looked_up = self.wanted = 0

    async def LookupModel(self, request: models_pb2.LookupModelRequest) -> Any:
        self.looked_up += 1
        if isinstance(self.means, grpc.StatusCode):
            raise grpc.aio.AioRpcError(self.means, grpc.aio.Metadata(), grpc.aio.Metadata(), "no")
        model = models_pb2.Model(version_id=self.means)
        servable = models_pb2.ServableModel(model=model, engine_version_id="base")
        return models_pb2.LookupModelResponse(model=servable)

    async def WantModel(self, request: pb.WantModelRequest) -> pb.WantModelResponse:
        self.wanted += 1
        return pb.WantModelResponse()

    async def held(self) -> "asyncio.Task[tuple[EngineEndpoint, ...]]":
        """A request that waits for the version that the name means now."""
        task = asyncio.create_task(self.find("m"))
        await until(lambda: self.wanted > 0)
        return task


async def test_it_is_answered_by_the_new_version() -> None:
    services = MovingNames()
    request = await services.held()
    services.means = "new"
    services.publish(route("new", "", "http://engine"))
    (found,) = await request
    assert found.address == "http://engine"


async def test_the_new_version_is_waited_for_in_its_turn() -> None:
    services = MovingNames()
    request = await services.held()
    services.means = "new"
    services.publish(route("other", ""))
    await until(lambda: services.wanted == 2)
    services.publish(route("new", "", "http://engine"))
    assert [one.address for one in await request] == ["http://engine"]
    assert services.finder._load._adapters == {}


async def test_a_name_that_is_gone_is_waited_for_no_more() -> None:
    services = MovingNames()
    request = await services.held()
    services.means = UNKNOWN
    services.publish(route("other", ""))
    with pytest.raises(HttpError) as refusal:
        await request
    assert (refusal.value.status, refusal.value.code) == (404, "model_not_found")


async def test_it_outlasts_a_models_service_that_is_away_and_asks_it_seldom() -> None:
    services = MovingNames()
    request = await services.held()
    services.means = AWAY
    for number in range(50):
        services.publish(route(f"other-{number}", ""))
        await asyncio.sleep(0)
    assert services.looked_up <= 3
    services.publish(route("old", "", "http://engine"))
    assert [one.address for one in await request] == ["http://engine"]
