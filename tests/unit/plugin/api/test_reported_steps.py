"""Each answer says between which optimizer steps it was computed."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from windlass_vllm.api.reported_steps import ReportedSteps
from windlass_vllm.weights.private_folder import OwnFolder
from windlass_vllm.weights.step_counter import StepCounter


@pytest.fixture
def counter(tmp_path: Path) -> Iterator[StepCounter]:
    """A counter that the engine reads, of which the worker has another."""
    own = OwnFolder(tmp_path)
    yield StepCounter(own, new=True)
    own.close()


def application(counter: StepCounter) -> Starlette:
    """Answers in whose middle a step ends and another begins."""

    async def whole(request: Request) -> Response:
        counter.end()
        counter.begin()
        return PlainTextResponse("a")

    async def stream(request: Request) -> Response:
        def parts() -> Iterator[bytes]:
            yield b"data: a\n\n"
            counter.end()
            counter.begin()
            yield b"data: [DONE]\n\n"

        return StreamingResponse(parts(), media_type="text/event-stream")

    found = Starlette(routes=[Route("/whole", whole), Route("/stream", stream)])
    found.add_middleware(ReportedSteps, counts=lambda: (counter.ended, counter.begun))
    return found


async def test_steps_are_said_of_whole_answers_and_of_streams(counter: StepCounter) -> None:
    counter.begin()
    counter.end()
    counter.begin()
    transport = httpx.ASGITransport(application(counter))
    async with httpx.AsyncClient(transport=transport, base_url="http://engine") as client:
        # One step has ended, the second is in the weights in part; the third begins meanwhile.
        whole = await client.get("/whole")
        assert (whole.headers["x-windlass-steps"], whole.text) == ("1-3", "a")
        stream = await client.get("/stream")
    assert stream.headers["x-windlass-steps"] == "2-"
    assert stream.text == "data: a\n\ndata: [DONE]\n\n: x-windlass-steps 2-4\n\n"


async def test_an_engine_that_was_never_trained_says_nothing() -> None:
    found = Starlette(routes=[Route("/whole", lambda _: PlainTextResponse("a"))])
    found.add_middleware(ReportedSteps, counts=lambda: None)
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(found), base_url="http://engine"
    ) as client:
        assert "x-windlass-steps" not in (await client.get("/whole")).headers


def test_a_step_that_broke_off_counts_with_the_next(tmp_path: Path) -> None:
    own = OwnFolder(tmp_path)
    reader, writer = StepCounter(own, new=True), StepCounter(own)
    writer.begin()
    assert (reader.begun, reader.ended) == (1, 0)
    another = StepCounter(own)
    another.begin()
    another.end()
    assert (reader.begun, reader.ended) == (2, 2)
    own.close()
