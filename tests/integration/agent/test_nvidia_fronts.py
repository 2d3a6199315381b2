"""Triton's and NIM's fronts, adopted, by the protocol that their documentation says."""

from collections.abc import AsyncIterator

import pytest
from tests.integration.agent.test_adopted_driver import Adopted
from tests.support.environments.postgres import reachable_folder
from tests.support.fakes.nvidia_fronts import NvidiaFront, running_front
from tests.support.fakes.serving_stack import FakeStack

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.executors import adopted
from windlass_agent.executors.adopted import AdoptedDriver


@pytest.fixture(params=["triton", "nim"])
async def front(request: pytest.FixtureRequest) -> AsyncIterator[NvidiaFront]:
    async with running_front(request.param) as made:
        yield made


@pytest.fixture
async def ours(front: NvidiaFront, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Adopted]:
    """A model of the front, which becomes ready as soon as it is waited for."""
    monkeypatch.setattr(adopted, "STARTING_PROBE_SECONDS", 0.05)
    with reachable_folder() as folder:
        driver = AdoptedDriver(sockets=folder, drain_seconds=10, changed=lambda: None)
        made = Adopted(driver, FakeStack(url=front.url))
        await made.want()
        await made.reaches(pb.PHASE_STARTING, "lists no models (status 503)")
        front.ready = True
        yield made
        await driver.close()


async def test_it_answers_by_our_name_with_the_front_s_own_usage(
    front: NvidiaFront, ours: Adopted
) -> None:
    status = await ours.reaches(pb.PHASE_RUNNING)
    # Triton does not say how long its context is.
    assert status.capabilities.context_length == (4096 if front.kind == "nim" else 0)
    code, whole = await ours.ask(messages=[], cache_salt="s", priority=0)
    assert (code, whole["model"], whole["usage"]["total_tokens"]) == (200, "ours", 9)
    assert front.asked[0] == {"model": "theirs", "messages": []}
    *chunks, last, done = await ours.stream(messages=[], stream_options={"include_usage": True})
    assert {chunk["model"] for chunk in chunks} == {"ours"}
    assert [chunk["usage"]["estimated"] for chunk in chunks] == [True] * 3
    assert (last["usage"], done) == (whole["usage"], "[DONE]")


async def test_what_it_refuses_is_told_in_openai_s_shape(front: NvidiaFront, ours: Adopted) -> None:
    await ours.reaches(pb.PHASE_RUNNING)
    code, refused = await ours.ask(messages=[], n=2)
    assert code == 400
    assert "only single choice" in refused["error"]["message"]
    assert refused["error"]["type"] == "invalid_request_error"
    for path in (front.health, front.metrics, "/v1/models", "/v2/repository/index"):
        assert (await ours.ask(path))[0] == 404
    assert len(front.asked) == 1
