"""Spooled usage reaches its service however often either of them goes away."""

from pathlib import Path
from typing import Any

import grpc
import msgspec
from structlog.testing import capture_logs
from tests.unit.gateway.test_spool import line

from windlass.api.usage.v1 import usage_pb2 as pb
from windlass.gateway.usage.shipper import UsageShipper
from windlass.gateway.usage.spool import UsageSpool, frame


class Usage:
    """Stands for the usage service, which may be away or refuse."""

    def __init__(self) -> None:
        self.records: dict[str, pb.UsageRecord] = {}
        self.answer: grpc.StatusCode | None = None

    async def Record(self, request: pb.RecordRequest) -> pb.RecordResponse:
        if self.answer is not None:
            raise grpc.aio.AioRpcError(self.answer, grpc.aio.Metadata(), grpc.aio.Metadata())
        self.records |= {record.id: record for record in request.records}
        return pb.RecordResponse()


def make(folder: Path) -> tuple[Usage, UsageSpool, UsageShipper]:
    usage: Any = Usage()
    spool = UsageSpool(folder)
    return usage, spool, UsageShipper(spool, usage)


async def test_every_field_arrives_and_the_segment_goes(tmp_path: Path) -> None:
    usage, spool, shipper = make(tmp_path)
    details = {"input_cached_tokens": 6, "output_reasoning_tokens": 7, "estimated": True}
    spool.record(msgspec.structs.replace(line(1), **details))
    assert await shipper.ship()
    record = usage.records["req_1"]
    assert {name: getattr(record, name) for name in details} == details
    assert (record.input_tokens, record.output_tokens, record.status) == (2, 3, 200)
    assert (record.duration_ms, record.time_to_first_token_ms, record.kind) == (4, 5, 1)
    assert list(tmp_path.iterdir()) == []


async def test_it_waits_on_disk_while_the_service_is_away(tmp_path: Path) -> None:
    usage, spool, shipper = make(tmp_path)
    usage.answer = grpc.StatusCode.UNAVAILABLE
    spool.record(line(1))
    assert not await shipper.ship()
    spool.record(line(2))
    assert not await shipper.ship()
    # A new process finds what the old one left.
    usage, _, shipper = make(tmp_path)
    assert await shipper.ship()
    assert set(usage.records) == {"req_1", "req_2"}


async def test_what_is_refused_for_ever_holds_up_nothing(tmp_path: Path) -> None:
    usage, spool, shipper = make(tmp_path)
    (tmp_path / "0.log").write_bytes(frame(line(1)))
    usage.answer = grpc.StatusCode.INVALID_ARGUMENT
    assert await shipper.ship()
    usage.answer = None
    spool.record(line(2))
    assert await shipper.ship()
    assert set(usage.records) == {"req_2"}
    assert [path.name for path in tmp_path.iterdir()] == ["0.refused"]


async def test_a_line_that_cannot_be_a_record_holds_up_nothing(tmp_path: Path) -> None:
    usage, spool, shipper = make(tmp_path)
    spool.record(line(1))
    spool.record(msgspec.structs.replace(line(2), output_tokens=10**19))
    spool.record(line(3))
    with capture_logs() as logs:
        assert await shipper.ship()
    assert set(usage.records) == {"req_1", "req_3"}
    (logged,) = [entry for entry in logs if entry["event"] == "usage_line_refused"]
    assert (logged["record"]["id"], logged["record"]["output_tokens"]) == ("req_2", 10**19)
    assert list(tmp_path.iterdir()) == []
