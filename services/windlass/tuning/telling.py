"""Tells the usage service what operations took: at least once, which their ids make once."""

from windlass.api.usage.v1 import usage_pb2 as pb
from windlass.api.usage.v1 import usage_pb2_grpc as rpc
from windlass.core.killpoints import reach
from windlass.tuning.storage.owing import AT_ONCE, OwedUsageStore

STATUS = 200
TELL_SECONDS = 1.0


class UsageTeller:
    """Brings owed usage to the usage service; two of them at once do no harm."""

    def __init__(self, store: OwedUsageStore, usage: rpc.UsageInternalServiceAsyncStub):
        self._store = store
        self._usage = usage

    async def once(self) -> bool:
        """Tells some; returns whether there may be more."""
        rows = await self._store.owed()
        if not rows:
            return False
        records = [
            pb.UsageRecord(
                id=row.id,
                at_ms=row.at_ms,
                organization_id=row.organization_id,
                project_id=row.project_id,
                user_id=row.user_id,
                key_id=row.key_id,
                model=row.model,
                kind=row.kind,
                input_tokens=row.input_tokens,
                output_tokens=row.output_tokens,
                device_time_ms=row.device_time_ms,
                status=STATUS,
            )
            for row in rows
        ]
        await self._usage.Record(pb.RecordRequest(records=records))
        reach("tuning.told")
        await self._store.told([row.id for row in rows])
        return len(rows) == AT_ONCE
