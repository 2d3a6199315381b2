"""Builds the files service."""

from windlass.api.files.v1 import files_pb2_grpc as rpc
from windlass.api.jobs.v1 import jobs_pb2_grpc
from windlass.core.app import App
from windlass.core.db.leases import run_loop
from windlass.core.exporting.exporter import exports_by
from windlass.core.leaving.eraser import erases
from windlass.core.quotas import Quotas
from windlass.files.leaving import CLAIMS
from windlass.files.scheduler import FilesScheduler
from windlass.files.service import FilesInternalServicer, FilesServicer
from windlass.files.store import FileStore

SWEEP_POLL_SECONDS = 30.0


async def build(app: App) -> None:
    """Constructs and registers files."""
    store = FileStore(app.database, Quotas(app.settings.quotas))
    servicer = FilesServicer(
        store,
        app.objects,
        app.wake,
        app.clients.stub(jobs_pb2_grpc.JobsInternalServiceStub),
        max_bytes=app.settings.files.max_bytes,
    )
    app.serve(servicer, rpc.add_FilesServiceServicer_to_server)
    app.serve(FilesInternalServicer(store), rpc.add_FilesInternalServiceServicer_to_server)
    erases(app, CLAIMS)
    exports_by(app, CLAIMS)
    scheduler = FilesScheduler(app.database, app.objects, app.wake)
    inspecting, sweeping = app.wake.listen("files"), app.wake.listen("files")
    app.background(
        "files.inspect",
        lambda: run_loop(
            "files.inspect", inspecting, scheduler.inspect_one, resting=scheduler.has_inspected_all
        ),
    )
    app.background(
        "files.sweep",
        lambda: run_loop(
            "files.sweep",
            sweeping,
            scheduler.sweep,
            poll_seconds=SWEEP_POLL_SECONDS,
            resting=scheduler.has_swept_all,
        ),
    )
