"""Engines by load, through the RPCs of gateways and of those who set it; the test is the agent."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.integration.inference.test_inference import Routes, serving, want
from tests.integration.models.test_models import ADAPTER, FILES
from tests.support.services.platform import Platform
from tests.support.waiting import soon, stays, until

from windlass.api.inference.v1 import inference_pb2 as pb
from windlass.core.errors import from_rpc

Served = tuple[Platform, Routes]


@pytest.fixture
async def served(database_url: str, tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(database_url, tmp_path, max_engines=8, scale_down_seconds=2.0) as pair:
        yield pair


async def put(platform: Platform, model: str, **fields: Any) -> pb.Serving:
    request = pb.PutServingRequest(model=model, **fields)
    made: pb.Serving = await platform.inference.PutServing(request, **platform.tenant())
    return made


async def report(platform: Platform, reporter: str, **loads: int) -> None:
    request = pb.ReportLoadRequest(reporter=reporter, open_requests=loads)
    await platform.inference_internal.ReportLoad(request)


async def test_load_takes_it_from_none_to_three_and_back(served: Served) -> None:
    platform, _ = served
    east = await platform.live_cluster()
    model = await platform.import_model("tiny", FILES, **platform.tenant())
    made = await put(platform, "tiny", min_replicas=0, max_replicas=3, target_requests=4)
    assert (made.replicas, made.max_replicas, made.target_requests) == (0, 3, 4)
    await stays(lambda: not east.engines("tiny"))
    await want(platform, "tiny")
    await until(lambda: len(east.engines("tiny")) == 1)
    # Two gateways, each with a part of it.
    await report(platform, "gw-1", **{model.version_id: 6})
    # The time that the page promises, from the report of the gateway on.
    async with soon(2):
        await report(platform, "gw-2", **{model.version_id: 5})
        await until(lambda: len(east.engines("tiny")) == 3)
    request = pb.GetServingRequest(model="tiny")
    assert (await platform.inference.GetServing(request, **platform.tenant())).replicas == 3
    await report(platform, "gw-1")
    await report(platform, "gw-2", **{model.version_id: 1})
    await until(lambda: len(east.engines("tiny")) == 1)


async def test_more_than_the_most_never_run_and_a_silent_gateway_counts_no_more(
    served: Served,
) -> None:
    platform, _ = served
    east = await platform.live_cluster()
    model = await platform.import_model("tiny", FILES, **platform.tenant())
    await put(platform, "tiny", min_replicas=1, max_replicas=2, target_requests=1)
    await report(platform, "gw-1", **{model.version_id: 100})
    await until(lambda: len(east.engines("tiny")) == 2)
    await stays(lambda: len(east.engines("tiny")) == 2)
    # It says nothing for ten seconds, and then nobody asks for the second.
    await until(lambda: len(east.engines("tiny")) == 1, 40)


async def shows(platform: Platform, engine_id: str, percent: int | None) -> None:
    """Waits until the list of engines shows this use of a cache."""

    async def shown() -> bool:
        call = platform.inference.ListEngines(pb.ListEnginesRequest(), **platform.tenant())
        (engine,) = (one for one in (await call).engines if one.id == engine_id)
        return engine.HasField("cache_percent") == (percent is not None) and (
            engine.cache_percent == (percent or 0)
        )

    await until(shown)


# Longer than the planner lies between two looks at what changed no route.
LOOKS = 2.5


async def test_full_caches_make_more_of_it_while_requests_are_open(served: Served) -> None:
    platform, _ = served
    east = await platform.live_cluster()
    model = await platform.import_model("tiny", FILES, **platform.tenant())
    made = await put(
        platform, "tiny", min_replicas=1, max_replicas=3, target_requests=100, target_cache=80
    )
    assert made.target_cache == 80
    first = await east.next_engine("tiny")
    await east.run(first, cache_percent=100)
    await shows(platform, first.id, 100)
    # Nobody asks.
    await stays(lambda: len(east.engines("tiny")) == 1, LOOKS)
    await report(platform, "gw-1", **{model.version_id: 3})
    await until(lambda: len(east.engines("tiny")) == 2)
    # One that starts has room, and an agent of before says nothing of it.
    (second,) = (one for one in east.engines("tiny") if one.id != first.id)
    await east.run(second)
    await report(platform, "gw-1", **{model.version_id: 3})
    await stays(lambda: len(east.engines("tiny")) == 2, LOOKS)
    await east.run(second, cache_percent=90)
    await report(platform, "gw-1", **{model.version_id: 3})
    await until(lambda: len(east.engines("tiny")) == 3)
    # What requests need no more goes with the caches.
    await east.run(first, cache_percent=10)
    await east.run(second, cache_percent=0)
    await until(lambda: len(east.engines("tiny")) == 1, 40)


async def test_a_load_that_cannot_be_is_not_known(served: Served) -> None:
    platform, routes = served
    east = await platform.live_cluster()
    model = await platform.import_model("tiny", FILES, **platform.tenant())
    made = await put(platform, "tiny", min_replicas=1, max_replicas=3)
    assert made.target_cache == 90
    engine = await east.next_engine("tiny")
    await east.run(engine, cache_percent=50, requests=7)
    await shows(platform, engine.id, 50)
    # Gateways hear of it too.
    told = {"cache_percent": 50, "requests": 7, "engine_version_id": model.version_id}
    await until(
        lambda: (
            [{name: getattr(one, name) for name in told} for one in routes.loads.values()] == [told]
        )
    )
    for wrong in (101, -1, 2**31 - 1):
        await east.run(engine, cache_percent=wrong)
        await shows(platform, engine.id, None)
        await report(platform, "gw-1", **{model.version_id: 3})
        await stays(lambda: len(east.engines("tiny")) == 1, LOOKS)
        await east.run(engine, cache_percent=0)
        await shows(platform, engine.id, 0)


async def test_waits_make_as_many_as_answer_all_at_gateways_and_in_engines(
    served: Served,
) -> None:
    platform, _ = served
    east = await platform.live_cluster()
    model = await platform.import_model("tiny", FILES, **platform.tenant())
    made = await put(platform, "tiny", min_replicas=1, max_replicas=4, target_requests=100)
    assert made.target_wait_seconds == 0
    first = await east.next_engine("tiny")
    await east.run(first)
    version = model.version_id
    # Six of ten wait for an engine that answers four at once.
    waits = pb.ReportLoadRequest(
        reporter="gw-1",
        open_requests={version: 10},
        lines={version: pb.GatewayLine(requests=6, seconds=9.0)},
    )
    await platform.inference_internal.ReportLoad(waits)
    await stays(lambda: len(east.engines("tiny")) == 1, LOOKS)
    made = await put(
        platform, "tiny", min_replicas=1, max_replicas=4, target_requests=100, target_wait_seconds=5
    )
    assert made.target_wait_seconds == 5
    await platform.inference_internal.ReportLoad(waits)
    await until(lambda: len(east.engines("tiny")) == 3)
    # A fourth by what an engine says; one that starts is no reason for more.
    await east.run(first, wait_seconds=8, requests_at_once=2)
    await report(platform, "gw-1", **{version: 7})
    await until(lambda: len(east.engines("tiny")) == 4)


async def test_busy_gpus_make_more_of_it_and_are_shown(served: Served) -> None:
    platform, _ = served
    east = await platform.live_cluster()
    model = await platform.import_model("tiny", FILES, **platform.tenant())
    made = await put(
        platform, "tiny", min_replicas=1, max_replicas=3, target_requests=100, target_gpu=60
    )
    assert made.target_gpu == 60
    first = await east.next_engine("tiny")
    await east.run(first, gpu_percent=100, wait_seconds=0)
    await report(platform, "gw-1", **{model.version_id: 3})
    await until(lambda: len(east.engines("tiny")) == 2)
    call = platform.inference.ListEngines(pb.ListEnginesRequest(), **platform.tenant())
    (shown,) = (one for one in (await call).engines if one.id == first.id)
    assert (shown.gpu_percent, shown.HasField("wait_seconds"), shown.wait_seconds) == (100, True, 0)


async def test_a_gateway_of_before_leaves_targets_that_it_does_not_know(served: Served) -> None:
    platform, _ = served
    await platform.live_cluster()
    await platform.import_model("tiny", FILES, **platform.tenant())
    await put(
        platform, "tiny", max_replicas=3, target_cache=0, target_gpu=60, target_wait_seconds=5
    )
    made = await put(platform, "tiny", max_replicas=2)
    assert (made.max_replicas, made.target_cache, made.target_gpu, made.target_wait_seconds) == (
        2,
        0,
        60,
        5,
    )
    made = await put(platform, "tiny", target_cache=90, target_gpu=0, target_wait_seconds=0)
    assert (made.target_cache, made.target_gpu, made.target_wait_seconds) == (90, 0, 0)


async def test_load_of_what_is_not_to_scale_changes_nothing(served: Served) -> None:
    platform, _ = served
    east = await platform.live_cluster()
    model = await platform.import_model("tiny", FILES, **platform.tenant())
    await want(platform, "tiny")
    await until(lambda: len(east.engines("tiny")) == 1)
    await report(platform, "gw-1", **{model.version_id: 100, "mv-nobody-knows": 3})
    await put(platform, "tiny", min_replicas=1)
    await stays(lambda: len(east.engines("tiny")) == 1)


# It began a minute ago at most and ends on a 29 February, and the other way around.
OPEN = pb.ScheduleWindow(start="* * * * *", end="0 0 29 2 *", replicas=2)
CLOSED = pb.ScheduleWindow(start="0 0 29 2 *", end="* * * * *", timezone="Asia/Tokyo", replicas=4)


async def test_a_window_of_time_keeps_engines_that_nobody_asks_for(served: Served) -> None:
    platform, _ = served
    east = await platform.live_cluster()
    await platform.import_model("tiny", FILES, **platform.tenant())
    made = await put(platform, "tiny", min_replicas=0, schedule=[CLOSED])
    assert (made.replicas, list(made.schedule)) == (0, [CLOSED])
    await stays(lambda: not east.engines("tiny"))
    made = await put(platform, "tiny", min_replicas=0, schedule=[CLOSED, OPEN])
    assert made.replicas == 2
    await until(lambda: len(east.engines("tiny")) == 2)
    await put(platform, "tiny", min_replicas=1, schedule=[CLOSED])
    await until(lambda: len(east.engines("tiny")) == 1)


async def test_a_window_raises_the_least_of_what_load_decides(served: Served) -> None:
    platform, _ = served
    east = await platform.live_cluster()
    model = await platform.import_model("tiny", FILES, **platform.tenant())
    await put(platform, "tiny", max_replicas=3, target_requests=1, schedule=[OPEN])
    await until(lambda: len(east.engines("tiny")) == 2)
    await report(platform, "gw-1", **{model.version_id: 3})
    await until(lambda: len(east.engines("tiny")) == 3)


async def test_what_cannot_be_is_refused_and_of_an_adapter_what_is_its_bases(
    served: Served,
) -> None:
    platform, _ = served
    base = await platform.import_model("tiny", FILES, **platform.tenant())
    wrong = pb.ScheduleWindow(start="sometimes", end="0 9 * * *", replicas=1)
    for fields, param in (
        ({"min_replicas": 3, "max_replicas": 2}, "max_replicas"),
        ({"max_replicas": 3, "schedule": [OPEN, wrong]}, "schedule.1.start"),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await put(platform, "tiny", **fields)
        assert from_rpc(caught.value).param == param
    await platform.register_adapter("ft:tiny", base, ADAPTER)
    for name in ("max_replicas", "target_cache"):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await put(platform, "ft:tiny", min_replicas=1, **{name: 2})
        assert f"set {name} for tiny" in from_rpc(caught.value).message
    # What is usual may be said, as by who sends a serving back as it was shown.
    assert (await put(platform, "ft:tiny", min_replicas=0, target_cache=90)).target_cache == 90
