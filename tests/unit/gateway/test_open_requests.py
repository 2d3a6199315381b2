"""Numbers of open requests, as a gateway tells them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Any

import grpc
import pytest
from tests.support.waiting import stays, until

from windlass.api.inference.v1 import inference_pb2 as pb
from windlass.gateway.inference import routes
from windlass.gateway.inference.routes import OpenRequests


class Inference:
    """The inference service, which may be away."""

    def __init__(self) -> None:
        self.told: list[dict[str, int]] = []
        self.adapters: list[dict[str, int]] = []
        self.lines: list[dict[str, tuple[int, float, int]]] = []
        self.reporters: set[str] = set()
        self.away = False
        self.refused = 0

    async def ReportLoad(self, request: pb.ReportLoadRequest, timeout: float) -> Any:
        if self.away:
            self.refused += 1
            code = grpc.StatusCode.UNAVAILABLE
            raise grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata())
        self.told.append(dict(request.open_requests))
        self.adapters.append(dict(request.adapter_requests))
        self.lines.append(
            {
                name: (one.requests, one.seconds, one.background)
                for name, one in request.lines.items()
            }
        )
        self.reporters.add(request.reporter)
        return pb.ReportLoadResponse()


@pytest.fixture
async def pair(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[OpenRequests, Inference]]:
    monkeypatch.setattr(routes, "CHANGE_SECONDS", 0.0)
    monkeypatch.setattr(routes, "REPEAT_SECONDS", 0.05)
    inference: Any = Inference()
    load = OpenRequests(inference, lambda: {"v1": (3, 2.5, 1)})
    task = asyncio.create_task(load.report())
    yield load, inference
    task.cancel()


async def test_what_opens_and_ends_is_told_and_an_empty_gateway_is_silent(
    pair: tuple[OpenRequests, Inference],
) -> None:
    load, inference = pair
    with load.counted("v1"), load.counted("v1"), load.counted("v2"), load.counted(""):
        await until(lambda: inference.told[-1:] == [{"v1": 2, "v2": 1}])
        assert inference.lines[-1] == {"v1": (3, 2.5, 1)}
        count = len(inference.told)
        # Said again, since what is old counts no more.
        await until(lambda: len(inference.told) > count + 2)
    await until(lambda: inference.told[-1] == {})
    count = len(inference.told)
    await stays(lambda: len(inference.told) == count)
    assert len(inference.reporters) == 1


async def test_a_service_that_is_away_hears_the_newest_once_it_is_back(
    pair: tuple[OpenRequests, Inference],
) -> None:
    load, inference = pair
    inference.away = True
    with load.counted("v1"):
        await until(lambda: inference.refused > 1)
        inference.away = False
        await until(lambda: inference.told[-1:] == [{"v1": 1}])


async def test_requests_of_adapters_are_told_beside_those_of_their_engines(
    pair: tuple[OpenRequests, Inference],
) -> None:
    load, inference = pair
    with load.counted("v1", "a1"), load.counted("v1", "a2"), load.counted("v1", "v1"):
        await until(lambda: inference.told[-1:] == [{"v1": 3}])
        assert inference.adapters[-1] == {"a1": 1, "a2": 1}
    # Of which engines answer, nothing is known yet.
    with load.counted("", "a1"):
        await until(lambda: inference.adapters[-1] == {"a1": 1})
        assert inference.told[-1] == {}
    await until(lambda: inference.adapters[-1] == {})


async def test_of_many_adapters_those_with_the_most_requests_are_told(
    pair: tuple[OpenRequests, Inference], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "TOLD_ADAPTERS", 2)
    load, inference = pair
    with ExitStack() as stack:
        for adapter in ("a1", "a2", "a3", "a1", "a3"):
            stack.enter_context(load.counted("v1", adapter))
        await until(lambda: inference.told[-1:] == [{"v1": 5}])
        assert inference.adapters[-1] == {"a1": 2, "a3": 2}
