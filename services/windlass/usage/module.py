"""Builds the usage service."""

import asyncio

from windlass.api.usage.v1 import allowances_pb2_grpc
from windlass.api.usage.v1 import usage_pb2_grpc as rpc
from windlass.core.app import App
from windlass.core.clock import now_ms
from windlass.core.db.leases import tolerated
from windlass.core.exporting.exporter import exports_by
from windlass.core.leaving.eraser import erases
from windlass.usage.allowance_service import AllowancesInternalServicer
from windlass.usage.allowances import AllowanceStore, forget_idle
from windlass.usage.leaving import CLAIMS
from windlass.usage.rolling import roll_up
from windlass.usage.service import UsageInternalServicer, UsageServicer
from windlass.usage.store import UsageStore

FORGET_SECONDS = 3600.0
ROLL_UP_SECONDS = 600.0


async def build(app: App) -> None:
    """Constructs and registers usage."""
    store = UsageStore(app.database)
    app.serve(UsageServicer(store), rpc.add_UsageServiceServicer_to_server)
    app.serve(UsageInternalServicer(store), rpc.add_UsageInternalServiceServicer_to_server)
    app.serve(
        AllowancesInternalServicer(AllowanceStore(app.database)),
        allowances_pb2_grpc.add_AllowancesInternalServiceServicer_to_server,
    )

    erases(app, CLAIMS)
    exports_by(app, CLAIMS)

    async def summarize() -> None:
        kept_ms = app.settings.usage.keep_days * 86_400_000
        while True:
            async with tolerated("usage.hours"):
                while await roll_up(app.database, before_ms=now_ms() - kept_ms):
                    pass
            await asyncio.sleep(ROLL_UP_SECONDS)

    app.background("usage.hours", summarize)

    async def forget() -> None:
        while True:
            await asyncio.sleep(FORGET_SECONDS)
            async with tolerated("usage.allowances"):
                await forget_idle(app.database)

    app.background("usage.allowances", forget)
