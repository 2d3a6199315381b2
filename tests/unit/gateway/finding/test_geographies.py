"""Requests of projects whose data stays somewhere reach engines there alone."""

import asyncio
import time

import pytest
from tests.unit.gateway.finding.test_kinds_of_engines import Services

from windlass.api.inference.v1 import inference_pb2 as pb
from windlass.gateway.errors import HttpError
from windlass.gateway.inference import waiting


def route(**geographies: str) -> pb.Route:
    """A route of the model `v1` to engines in these geographies."""
    endpoints = [pb.Endpoint(engine_id=k, address=k, geography=v) for k, v in geographies.items()]
    return pb.Route(version_id="v1", engine_version_id="v1", endpoints=endpoints)


async def test_a_request_goes_to_the_engines_of_its_geography() -> None:
    services = Services()
    services.geography = "EU"
    services.publish(route(a="US", b="EU", c=""))
    assert [one.address for one in await services.find("v1")] == ["b"]


async def test_a_request_of_no_geography_goes_to_any() -> None:
    services = Services()
    services.publish(route(a="US", b="EU", c=""))
    assert [one.address for one in await services.find("v1")] == ["a", "b", "c"]


async def test_where_none_is_there_the_answer_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "OLD_ERROR_SECONDS", 0.0)
    services = Services()
    services.geography = "EU"
    services.publish(route(a="US", c=""))
    began = time.monotonic()
    with pytest.raises(HttpError, match="the project's data stays in EU") as refused:
        await services.find("v1")
    assert (refused.value.status, refused.value.code) == (503, "model_not_ready")
    assert time.monotonic() - began < 4


async def test_a_request_waits_for_an_engine_that_comes_there() -> None:
    services = Services()
    services.geography = "EU"
    services.publish(route(a="US"))
    request = asyncio.create_task(services.find("v1"))
    await asyncio.sleep(0)
    services.publish(route(a="US", b="EU"))
    assert [one.address for one in await request] == ["b"]


async def test_what_is_offered_while_a_request_waits_for_a_place_is_there_too() -> None:
    services = Services()
    services.publish(route(a="US", b="EU"))
    offered = services.finder.endpoints("v1", geography="EU")
    assert [one.address for one in offered] == ["b"]
    # One whose cluster got another label is offered no more.
    services.publish(route(a="US", b="US"))
    assert services.finder.endpoints("v1", geography="EU") == ()
