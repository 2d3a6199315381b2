"""The servicers of usage."""

from typing import Any

from windlass.api.usage.v1 import usage_pb2 as pb
from windlass.api.usage.v1 import usage_pb2_grpc as rpc
from windlass.core.clock import now_seconds
from windlass.core.errors import InvalidArgument
from windlass.core.rpc.auth import current
from windlass.usage.domain import Query, UsageRecord, make_query
from windlass.usage.store import AMOUNTS, COUNTS, UsageStore

FIELDS = tuple(UsageRecord.__slots__)
BATCH = 10_000


class UsageServicer(rpc.UsageServiceServicer):
    """UsageService."""

    def __init__(self, store: UsageStore):
        self._store = store

    async def QueryUsage(
        self, request: pb.QueryUsageRequest, context: Any
    ) -> pb.QueryUsageResponse:
        """Sums over buckets of time, of what the caller may see."""
        query = make_query(
            current(),
            start_at=request.start_at,
            end_at=request.end_at,
            now=now_seconds(),
            bucket_width=request.bucket_width,
            group_by=request.group_by,
            filters={
                "model": request.models,
                "project_id": request.project_ids,
                "key_id": request.key_ids,
            },
            limit=request.limit,
            page=request.page,
        )
        found = await self._store.query(query)
        return pb.QueryUsageResponse(
            buckets=[
                pb.UsageBucket(
                    start_at=start,
                    end_at=end,
                    results=[_result(query, row) for row in found.get(start, ())],
                )
                for start, end in query.buckets()
            ],
            has_more=bool(query.next_page),
            next_page=query.next_page,
        )


class UsageInternalServicer(rpc.UsageInternalServiceServicer):
    """UsageInternalService."""

    def __init__(self, store: UsageStore):
        self._store = store

    async def Record(self, request: pb.RecordRequest, context: Any) -> pb.RecordResponse:
        """Stores records; idempotent by id."""
        if len(request.records) > BATCH:
            raise InvalidArgument(f"At most {BATCH} records at once.", param="records")
        await self._store.append(_record(message) for message in request.records)
        return pb.RecordResponse()


def _record(message: pb.UsageRecord) -> UsageRecord:
    if not message.id or not message.organization_id or message.at_ms <= 0:
        raise InvalidArgument(
            "Each record must have an id, an organization_id and a positive at_ms.",
            param="records",
        )
    if any(getattr(message, name) < 0 for name in AMOUNTS):
        raise InvalidArgument(
            f"{', '.join(AMOUNTS)} of a record must be 0 or more.", param="records"
        )
    return UsageRecord(**{name: getattr(message, name) for name in FIELDS})


def _result(query: Query, row: Any) -> pb.UsageResult:
    result = pb.UsageResult()
    for name in (*AMOUNTS, *COUNTS):
        setattr(result, name, int(getattr(row, name)))
    for name in query.group_by:
        setattr(result, name, getattr(row, name))
    return result
