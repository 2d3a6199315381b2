"""The servicer of allowances."""

import math
from typing import Any

from windlass.api.usage.v1 import allowances_pb2 as pb
from windlass.api.usage.v1 import allowances_pb2_grpc as rpc
from windlass.core.errors import InvalidArgument
from windlass.usage.allowances import AllowanceStore, BucketDraw, Draw


class AllowancesInternalServicer(rpc.AllowancesInternalServiceServicer):
    """AllowancesInternalService."""

    def __init__(self, store: AllowanceStore):
        self._store = store

    async def Draw(self, request: pb.DrawRequest, context: Any) -> pb.DrawResponse:
        """Move a part of a project's allowance to one gateway."""
        wanted = {"requests": request.requests, "tokens": request.tokens}
        draws = {kind: _bucket(one) for kind, one in wanted.items() if one.per_minute}
        rates, held = await self._store.draw(
            Draw(
                project_id=request.project_id,
                holder=request.holder,
                buckets=draws,
                concurrent_limit=request.concurrent_limit,
                slots_active=request.slots_active,
                slots_wanted=request.slots_wanted,
            )
        )
        grants = {
            kind: pb.BucketGrant(granted=granted, level=level)
            for kind, (granted, level) in rates.items()
        }
        return pb.DrawResponse(
            requests=grants.get("requests"), tokens=grants.get("tokens"), slots=held
        )


def _bucket(draw: pb.BucketDraw) -> BucketDraw:
    amounts = (draw.needed, draw.wanted, draw.settled)
    if draw.per_minute < 0 or not all(map(math.isfinite, amounts)) or min(amounts[:2]) < 0:
        raise InvalidArgument(
            "per_minute, needed and wanted must be finite and 0 or more, and settled finite.",
            param="requests",
        )
    return BucketDraw(draw.per_minute, *amounts)
