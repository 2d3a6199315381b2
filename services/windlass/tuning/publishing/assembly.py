"""Assembles the publishing of weights."""

from functools import partial

from windlass.api.tuning.v1 import publishing_pb2_grpc as rpc
from windlass.core.app import App
from windlass.core.db.leases import no_rows, run_loop
from windlass.tuning.execution.folders import CheckpointFolders
from windlass.tuning.publishing.media import PublishingMedia
from windlass.tuning.publishing.publisher import WeightPublisher
from windlass.tuning.publishing.servicer import PublishingServicer
from windlass.tuning.publishing.store import VersionStore
from windlass.tuning.storage.checkpoints import WeightsStore
from windlass.tuning.storage.tables import runs

POLL_SECONDS = 1.0
# That plans engines, and hears of new versions by it.
WAKE_INFERENCE = "inference"


def serve_publishing(app: App, checkpoints: WeightsStore, folders: CheckpointFolders) -> None:
    """Registers what publishes weights, and what tells engines of them."""
    settings = app.settings.tuning
    scratch = app.settings.data_dir / "tuning-versions"
    store, media = (
        VersionStore(app.database),
        PublishingMedia(settings.publishing, app.objects, scratch),
    )
    app.serve(
        PublishingServicer(
            store,
            media,
            app.objects,
            publishes=bool(settings.publishing.medium),
            presign_seconds=app.settings.objects.presign_seconds,
        ),
        rpc.add_PublishingServiceServicer_to_server,
    )
    if not settings.publishing.medium:
        return
    publisher = WeightPublisher(
        store,
        checkpoints,
        folders,
        media,
        settings.model_folders,
        scratch,
        full_every=settings.publishing.full_every,
        changed=lambda: app.wake.touch(WAKE_INFERENCE),
    )
    app.on_stop(publisher.close)
    app.background(
        "tuning.publisher",
        partial(
            run_loop,
            "tuning.publisher",
            app.wake.listen("tuning versions"),
            publisher.once,
            poll_seconds=POLL_SECONDS,
            resting=no_rows(app.database, runs.c.is_full),
        ),
    )
