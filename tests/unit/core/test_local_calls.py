"""A process that calls itself: over its socket and without one, the same happens."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.support.waiting import PATIENCE

from windlass.api.auth.v1 import auth_pb2
from windlass.api.jobs.v1 import jobs_pb2 as pb
from windlass.api.jobs.v1 import jobs_pb2_grpc as rpc
from windlass.core import telemetry
from windlass.core.errors import InvalidArgument, Unauthenticated, from_rpc
from windlass.core.rpc import auth
from windlass.core.rpc.auth import principal_token
from windlass.core.rpc.clients import Clients
from windlass.core.rpc.interceptor import Boundary
from windlass.core.rpc.local import LocalServices
from windlass.core.rpc.server import Server


class Desk(rpc.JobsInternalServiceServicer):
    """Does what the file's id says."""

    def __init__(self) -> None:
        self.cancelled = asyncio.Event()
        self.answer = pb.FindUsesResponse(job_ids=["ftjob-1"])

    def _unasked(self, request: Any, context: Any) -> Any:
        raise NotImplementedError

    ChooseCluster = _unasked

    async def FindUses(self, request: pb.FindUsesRequest, context: Any) -> pb.FindUsesResponse:
        match request.file_id:
            case "refused":
                raise InvalidArgument("No such file.", reason="file_not_found", param="file_id")
            case "broken":
                raise RuntimeError("secret of ours")
            case "long":
                try:
                    await asyncio.Event().wait()
                finally:
                    self.cancelled.set()
            case "who":
                names = [principal_token.get(), telemetry.request_id.get()]
                return pb.FindUsesResponse(job_ids=names)
        request.file_id = "changed"
        return self.answer


class Door:
    """Lets in who shows the service's token."""

    async def admit(self, rule: auth_pb2.Rule, metadata: dict[str, str]) -> None:
        if metadata.get("windlass-service") != "ours":
            raise Unauthenticated("Only services may make this call.")
        auth.enter()


class Process:
    """A server, and a stub of the process itself."""

    def __init__(self, socket: Path, *, local: bool, token: str = "ours"):
        boundary = Boundary(Door())
        services = LocalServices(boundary) if local else None
        self.desk = Desk()
        self.server = Server([boundary], local=services)
        self.server.add(self.desk, rpc.add_JobsInternalServiceServicer_to_server)
        self.clients = Clients(
            own_address=f"unix:{socket}",
            own_services=["jobs"],
            peers={},
            service_token=lambda: token,
            local=services,
        )
        self.stub = self.clients.stub(rpc.JobsInternalServiceStub)
        self.socket = socket

    async def __aenter__(self) -> "Process":
        await self.server.start(socket=self.socket)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.clients.close()
        await self.server.stop(0)


@pytest.fixture(params=[True, False], ids=["local", "socket"])
async def process(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Process]:
    async with Process(tmp_path / "own.sock", local=request.param) as made:
        yield made


async def refusal(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    return refused.value


async def test_an_answer_and_its_question_are_copies(process: Process) -> None:
    request = pb.FindUsesRequest(file_id="file-1")
    answer = await process.stub.FindUses(request)
    assert list(answer.job_ids) == ["ftjob-1"]
    assert request.file_id == "file-1"
    answer.job_ids.append("ftjob-2")
    assert list(process.desk.answer.job_ids) == ["ftjob-1"]


async def test_a_refusal_keeps_its_code_reason_and_field(process: Process) -> None:
    error = from_rpc(await refusal(process.stub.FindUses(pb.FindUsesRequest(file_id="refused"))))
    assert isinstance(error, InvalidArgument)
    assert (error.message, error.reason) == ("No such file.", "file_not_found")
    assert error.param == "file_id"


async def test_a_defect_is_internal_and_says_nothing(process: Process) -> None:
    error = await refusal(process.stub.FindUses(pb.FindUsesRequest(file_id="broken")))
    assert error.code() is grpc.StatusCode.INTERNAL
    assert "secret" not in str(error.details())


async def test_a_deadline_ends_the_work(process: Process) -> None:
    call = process.stub.FindUses(pb.FindUsesRequest(file_id="long"), timeout=1.0)
    assert (await refusal(call)).code() is grpc.StatusCode.DEADLINE_EXCEEDED
    async with asyncio.timeout(PATIENCE):
        await process.desk.cancelled.wait()


async def test_a_caller_that_leaves_ends_the_work(process: Process) -> None:
    async def ask() -> None:
        await process.stub.FindUses(pb.FindUsesRequest(file_id="long"))

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(ask(), 1.0)
    async with asyncio.timeout(PATIENCE):
        await process.desk.cancelled.wait()


async def test_nothing_but_metadata_passes(process: Process) -> None:
    principal_token.set("of the caller")
    telemetry.request_id.set("req_1")
    answer = await process.stub.FindUses(pb.FindUsesRequest(file_id="who"))
    assert list(answer.job_ids) == ["", "req_1"]


@pytest.mark.parametrize("local", [True, False])
async def test_the_boundary_stands_before_it(tmp_path: Path, local: bool) -> None:
    async with Process(tmp_path / "own.sock", local=local, token="forged") as process:
        error = await refusal(process.stub.FindUses(pb.FindUsesRequest(file_id="file-1")))
        assert error.code() is grpc.StatusCode.UNAUTHENTICATED
