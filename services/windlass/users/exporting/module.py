"""Builds exports, a part of users."""

from windlass.api.users.v1 import exports_pb2_grpc as rpc
from windlass.core.app import App
from windlass.core.db.leases import run_loop
from windlass.core.exporting.exporter import exports_by
from windlass.core.exporting.tables import TOPIC
from windlass.core.leaving import kernel
from windlass.core.leaving.claims import LeavingClaims
from windlass.users.exporting.conductor import ExportConductor
from windlass.users.exporting.service import ExportsServicer
from windlass.users.exporting.store import ExportStore

POLL_SECONDS = 5.0


def build(app: App, claims: LeavingClaims) -> None:
    """Constructs and registers the servicer and the loops."""
    keep_seconds = app.settings.leaving.export_keep_seconds
    store = ExportStore(app.database, keep_seconds=keep_seconds)
    app.serve(
        ExportsServicer(app.database, store, app.wake), rpc.add_ExportsServiceServicer_to_server
    )
    conductor = ExportConductor(app.database, app.objects, keep_seconds=keep_seconds)
    listener = app.wake.listen(TOPIC)

    async def once() -> bool:
        worked = await conductor.once()
        if worked:
            app.wake.touch(TOPIC)
        return worked

    app.background(
        "users.exporting",
        lambda: run_loop(
            "users.exporting",
            listener,
            once,
            poll_seconds=POLL_SECONDS,
            resting=conductor.has_none,
        ),
    )
    # Nobody else hands out what the kernel keeps of a tenant.
    for one in (claims, kernel.CLAIMS):
        exports_by(app, one)
