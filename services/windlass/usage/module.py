"""Builds the usage service."""

from windlass.api.usage.v1 import usage_pb2_grpc as rpc
from windlass.core.app import App
from windlass.usage.service import UsageInternalServicer, UsageServicer
from windlass.usage.store import UsageStore


async def build(app: App) -> None:
    """Constructs and registers usage."""
    store = UsageStore(app.database)
    app.serve(UsageServicer(store), rpc.add_UsageServiceServicer_to_server)
    app.serve(UsageInternalServicer(store), rpc.add_UsageInternalServiceServicer_to_server)
