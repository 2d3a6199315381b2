"""Builds feeds, beside the trainings that they ask for."""

from windlass.api.gateway.v1.gateway_pb2_grpc import (
    GatewayInternalServiceStub,
)
from windlass.api.inference.v1 import feeds_pb2_grpc as rpc
from windlass.api.models.v1 import models_pb2_grpc
from windlass.api.users.v1 import users_pb2_grpc
from windlass.core.app import App
from windlass.core.db.leases import run_loop
from windlass.inference.feeds.grading import FeedGrading
from windlass.inference.feeds.requests import TOPIC, FeedRequests
from windlass.inference.feeds.scheduler import FeedScheduler
from windlass.inference.feeds.service import FeedsInternalServicer, FeedsServicer
from windlass.inference.feeds.standing import FeedStandings
from windlass.inference.feeds.store import FeedStore
from windlass.inference.feeds.work import FeedWork
from windlass.inference.trainings.holds import EngineHoldStore
from windlass.inference.trainings.store import EngineTrainingStore
from windlass.inference.trainings.trainable import TrainableServings

POLL_SECONDS = 1.0


def build_feeds(
    app: App, servings: TrainableServings, trainings: EngineTrainingStore, holds: EngineHoldStore
) -> None:
    """Constructs and registers feeds."""
    store = FeedStore(app.database)
    standings = FeedStandings(app.clients.stub(users_pb2_grpc.UsersInternalServiceStub), servings)
    models = app.clients.stub(models_pb2_grpc.ModelsInternalServiceStub)
    grading = FeedGrading(app.clients.stub_or_none(GatewayInternalServiceStub), models)
    requests = FeedRequests(store, servings, standings, grading, app.wake)
    app.serve(FeedsServicer(requests), rpc.add_FeedsServiceServicer_to_server)
    app.serve(
        FeedsInternalServicer(store, standings, app.wake),
        rpc.add_FeedsInternalServiceServicer_to_server,
    )
    scheduler = FeedScheduler(
        FeedWork(app.database), standings, grading, trainings, holds, app.wake
    )
    app.background(
        "inference.feeds",
        lambda: run_loop(
            "inference.feeds",
            app.wake.listen(TOPIC),
            scheduler.once,
            poll_seconds=POLL_SECONDS,
            resting=store.is_empty,
        ),
    )
