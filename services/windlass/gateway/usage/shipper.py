"""Sends spooled usage to the usage service: at least once, which its ids make exactly once."""

from itertools import islice
from pathlib import Path

import grpc
import msgspec

from windlass.api.usage.v1 import usage_pb2 as pb
from windlass.api.usage.v1 import usage_pb2_grpc as rpc
from windlass.core import telemetry
from windlass.core.spool import SpoolShipper
from windlass.gateway.usage.spool import UsageLine, UsageSpool, read_segment

log = telemetry.logger("gateway.usage")
BATCH = 1000
FLUSH_SECONDS = 0.5


class UsageShipper(SpoolShipper):
    """Drains a spool of usage."""

    def __init__(self, spool: UsageSpool, usage: rpc.UsageInternalServiceAsyncStub):
        super().__init__("usage", spool, self._send_segment, flush_seconds=FLUSH_SECONDS)
        self._usage = usage

    async def _send_segment(self, path: Path) -> None:
        lines = read_segment(path)
        while batch := list(islice(lines, BATCH)):
            try:
                if records := [*filter(None, map(_message, batch))]:
                    await self._usage.Record(pb.RecordRequest(records=records))
            except grpc.aio.AioRpcError as error:
                if error.code() != grpc.StatusCode.INVALID_ARGUMENT:
                    raise
                # It would be refused for ever and hold up what follows: set it aside.
                log.error("usage_segment_refused", segment=path.name, details=error.details())
                path.rename(path.with_suffix(".refused"))
                return


def _message(line: UsageLine) -> pb.UsageRecord | None:
    """The record of a line; None, which is logged, for one with numbers that no record has."""
    try:
        return pb.UsageRecord(**msgspec.structs.asdict(line))
    except ValueError as error:
        # It would hold up all others for ever, and none of them is wrong.
        log.error("usage_line_refused", record=msgspec.structs.asdict(line), error=str(error))
        return None
