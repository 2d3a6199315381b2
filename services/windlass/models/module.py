"""Builds the models service."""

from windlass.api.inference.v1 import inference_pb2_grpc
from windlass.api.jobs.v1 import jobs_pb2_grpc
from windlass.api.models.v1 import models_pb2_grpc as rpc
from windlass.api.users.v1 import users_pb2_grpc
from windlass.core.app import App
from windlass.core.db.leases import run_loop
from windlass.core.exporting.exporter import exports_by
from windlass.core.leaving.eraser import erases
from windlass.core.quotas import Quotas
from windlass.models.artifacts import Artifacts
from windlass.models.fetches.hub import Hub, session
from windlass.models.fetches.requests import TOPIC, FetchRequests
from windlass.models.fetches.store import FetchStore
from windlass.models.fetches.worker import FetchWorker
from windlass.models.grants.checks import GrantChecks
from windlass.models.grants.store import GrantStore
from windlass.models.imports import ImportStore, RemovalStore
from windlass.models.internal import ModelsInternalServicer
from windlass.models.listing import ModelList
from windlass.models.presets import preset_table
from windlass.models.removal.leaving import CLAIMS, NamesEnd
from windlass.models.removal.scheduler import ModelsScheduler
from windlass.models.service import ModelsServicer, Uses
from windlass.models.store import ModelStore

SWEEP_POLL_SECONDS = 15.0
FETCHERS = 4


async def build(app: App) -> None:
    """Constructs and registers models."""
    quotas = Quotas(app.settings.quotas)
    models, imports = ModelStore(app.database), ImportStore(app.database, quotas)
    listing = ModelList(app.database)
    presets = preset_table(app.settings.inference.presets)
    artifacts = Artifacts(
        app.objects, presets, presign_seconds=app.settings.objects.presign_seconds
    )
    uses = Uses(
        app.clients.stub(jobs_pb2_grpc.JobsInternalServiceStub),
        app.clients.stub(inference_pb2_grpc.InferenceInternalServiceStub),
    )
    grants = GrantStore(app.database)
    users = app.clients.stub(users_pb2_grpc.UsersInternalServiceStub)
    granting = GrantChecks(grants, users, app.wake)
    fetches, endpoint = FetchStore(app.database, quotas), app.settings.hub.endpoint
    fetching = FetchRequests(fetches, models, app.wake, offered=bool(endpoint))
    servicer = ModelsServicer(
        models, listing, imports, artifacts, uses, granting, fetching, app.wake
    )
    app.serve(servicer, rpc.add_ModelsServiceServicer_to_server)
    internal = ModelsInternalServicer(models, artifacts, listing, grants, uses, app.wake)
    app.serve(internal, rpc.add_ModelsInternalServiceServicer_to_server)
    if endpoint:
        http = session()
        app.on_stop(http.close)
        fetcher = FetchWorker(fetches, Hub(endpoint, http), app.objects, artifacts, users, app.wake)
        # Several at a time, so that nobody waits for somebody else's large model.
        for number in range(FETCHERS):
            _fetch(app, f"models.fetch.{number}", fetcher)
    erases(app, CLAIMS, NamesEnd(app.database, app.wake))
    exports_by(app, CLAIMS)
    removals = RemovalStore(app.database)
    scheduler = ModelsScheduler(app.objects, imports, removals, uses)
    listener = app.wake.listen("models")
    app.background(
        "models.sweep",
        lambda: run_loop(
            "models.sweep",
            listener,
            scheduler.sweep,
            poll_seconds=SWEEP_POLL_SECONDS,
            resting=removals.has_none,
        ),
    )


def _fetch(app: App, name: str, fetcher: FetchWorker) -> None:
    listener = app.wake.listen(TOPIC)
    app.background(
        name, lambda: run_loop(name, listener, fetcher.once, resting=fetcher.has_nothing)
    )
