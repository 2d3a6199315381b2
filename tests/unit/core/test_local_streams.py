"""A process that asks itself for a stream: over its socket and without one, the same happens."""

import asyncio
import gc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.support.waiting import PATIENCE, settled, until

from windlass.api.auth.v1 import auth_pb2
from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.clusters.v1 import clusters_pb2_grpc as rpc
from windlass.core import telemetry
from windlass.core.errors import InvalidArgument, from_rpc
from windlass.core.rpc import auth
from windlass.core.rpc.auth import principal_token
from windlass.core.rpc.clients import Clients
from windlass.core.rpc.interceptor import Boundary
from windlass.core.rpc.local import LocalServices
from windlass.core.rpc.server import Server

MANY = 100


def told(*words: str) -> pb.StatusDelta:
    return pb.StatusDelta(statuses=[pb.WorkloadStatus(workload_id=word) for word in words])


def words(delta: pb.StatusDelta) -> list[str]:
    return [status.workload_id for status in delta.statuses]


async def first(answers: Any) -> list[str]:
    return words(await anext(aiter(answers)))


class Desk(rpc.ClustersInternalServiceServicer):
    """Does what the owner says."""

    def __init__(self) -> None:
        self.running = False
        self.answers = 0

    def _unasked(self, request: Any, context: Any) -> Any:
        raise NotImplementedError

    AuthenticateAgent = FindEndedCredentials = EnrollLocal = LookupIssuer = _unasked
    ListCapacity = PutWorkload = _unasked

    async def WatchStatus(
        self, request: pb.WatchStatusRequest, context: Any
    ) -> AsyncIterator[pb.StatusDelta]:
        self.running = True
        try:
            if request.owner == "silent":
                await context.send_initial_metadata(())
                await asyncio.Event().wait()
            async for delta in self._tell(request.owner):
                self.answers += 1
                yield delta
        finally:
            self.running = False

    async def _tell(self, wish: str) -> AsyncIterator[pb.StatusDelta]:
        match wish:
            case "who":
                yield told(principal_token.get(), telemetry.request_id.get())
            case "refused":
                yield told("first")
                raise InvalidArgument("No such owner.", reason="not_found", param="owner")
            case "broken":
                raise RuntimeError("secret of ours")
            case "endless":
                while True:
                    yield told("x" * 100_000)
            case "quiet":
                yield told("first")
                await asyncio.Event().wait()
            case "many":
                delta = told("")
                for number in range(MANY):
                    delta.statuses[0].workload_id = str(number)
                    yield delta


class Door:
    """Lets everybody in."""

    async def admit(self, rule: auth_pb2.Rule, metadata: dict[str, str]) -> None:
        auth.enter()


class Process:
    """A server, and a stub of the process itself."""

    def __init__(self, socket: Path, *, local: bool):
        boundary = Boundary(Door())
        services = LocalServices(boundary) if local else None
        self.desk = Desk()
        self.server = Server([boundary], local=services)
        self.server.add(self.desk, rpc.add_ClustersInternalServiceServicer_to_server)
        self.clients = Clients(
            own_address=f"unix:{socket}",
            own_services=["clusters"],
            peers={},
            service_token=lambda: "ours",
            local=services,
        )
        self.stub = self.clients.stub(rpc.ClustersInternalServiceStub)

    def ask(self, wish: str, **options: Any) -> Any:
        return self.stub.WatchStatus(pb.WatchStatusRequest(owner=wish), **options)

    async def ended(self) -> None:
        await until(lambda: self.desk.answers and not self.desk.running)


@pytest.fixture(params=[True, False], ids=["local", "socket"])
async def process(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Process]:
    made = Process(tmp_path / "own.sock", local=request.param)
    await made.server.start(socket=tmp_path / "own.sock")
    yield made
    await made.clients.close()
    await made.server.stop(0)


async def test_every_answer_comes_once_in_order_as_it_was(process: Process) -> None:
    answers = [words(delta)[0] async for delta in process.ask("many")]
    assert answers == [str(number) for number in range(MANY)]


async def test_a_refusal_comes_after_the_answers_before_it(process: Process) -> None:
    answers = aiter(process.ask("refused"))
    assert words(await anext(answers)) == ["first"]
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await anext(answers)
    error = from_rpc(refused.value)
    assert isinstance(error, InvalidArgument)
    assert (error.message, error.reason, error.param) == ("No such owner.", "not_found", "owner")


@pytest.mark.parametrize(
    ("wish", "code"),
    [("broken", grpc.StatusCode.INTERNAL), ("quiet", None), ("none", None), ("silent", None)],
)
async def test_who_waits_for_the_beginning_hears_of_a_refusal(
    process: Process, wish: str, code: grpc.StatusCode | None
) -> None:
    answers = process.ask(wish)
    if wish == "silent":
        await answers.wait_for_connection()
    elif code is None:
        await answers.wait_for_connection()
        assert await answers.read() == (told("first") if wish == "quiet" else grpc.aio.EOF)
    else:
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await answers.wait_for_connection()
        assert failed.value.code() is code
    answers.cancel()


async def test_a_defect_is_internal_and_says_nothing(process: Process) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await first(process.ask("broken"))
    assert failed.value.code() is grpc.StatusCode.INTERNAL
    assert "secret" not in str(failed.value.details())


async def test_a_deadline_ends_the_work(process: Process) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as late:
        async for _ in process.ask("quiet", timeout=1.0):
            pass
    assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await process.ended()


async def test_who_cancels_ends_the_work(process: Process) -> None:
    answers = process.ask("quiet")
    await first(answers)
    assert answers.cancel()
    await process.ended()


@pytest.mark.parametrize("wait", ["read", "wait_for_connection"])
async def test_a_call_that_is_given_up_at_once_ends(process: Process, wait: str) -> None:
    answers = process.ask("quiet")
    answers.cancel()
    async with asyncio.timeout(PATIENCE):
        with pytest.raises((grpc.aio.AioRpcError, asyncio.CancelledError)):
            await getattr(answers, wait)()


async def test_a_reader_that_is_cancelled_ends_the_work(process: Process) -> None:
    async def read() -> None:
        async for _ in process.ask("quiet"):
            reading.set()

    reading = asyncio.Event()
    reader = asyncio.create_task(read())
    async with asyncio.timeout(PATIENCE):
        await reading.wait()
    reader.cancel()
    await process.ended()


@pytest.mark.parametrize("process", [True], ids=["local"], indirect=True)
async def test_a_reader_that_leaves_in_the_middle_ends_the_work(process: Process) -> None:
    async for _ in process.ask("endless"):
        break
    gc.collect()
    await process.ended()


async def test_who_reads_slowly_is_waited_for(process: Process) -> None:
    answers = process.ask("endless")
    await first(answers)
    assert await settled(lambda: process.desk.answers, 0.1) < 1000
    answers.cancel()
    await process.ended()


async def test_nothing_but_metadata_passes(process: Process) -> None:
    principal_token.set("of the caller")
    telemetry.request_id.set("req_1")
    assert await first(process.ask("who")) == ["", "req_1"]
