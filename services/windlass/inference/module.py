"""Builds the inference service."""

from windlass.api.clusters.v1 import clusters_pb2_grpc
from windlass.api.inference.v1 import inference_pb2_grpc as rpc
from windlass.api.models.v1 import models_pb2_grpc
from windlass.api.sessions.v1 import sessions_pb2_grpc
from windlass.api.tuning.v1 import publishing_pb2_grpc
from windlass.api.usage.v1 import usage_pb2_grpc
from windlass.api.users.v1 import users_pb2_grpc
from windlass.core.app import App
from windlass.core.db.leases import run_loop
from windlass.core.exporting.exporter import exports_by
from windlass.core.keyring import STACK_KEYS
from windlass.core.leaving.eraser import erases
from windlass.core.quotas import Quotas
from windlass.inference.archived_projects import POLL_SECONDS as ARCHIVED_POLL_SECONDS
from windlass.inference.archived_projects import ArchivedProjects
from windlass.inference.domain import InferencePolicy
from windlass.inference.feeds.module import build_feeds
from windlass.inference.followed_runs import FollowedRuns
from windlass.inference.leaving import CLAIMS, EnginesEnd
from windlass.inference.loads import LoadStore
from windlass.inference.names import Names
from windlass.inference.observed_state import ObservedState
from windlass.inference.prefetches.requests import PrefetchRequests
from windlass.inference.prefetches.scheduler import PrefetchScheduler
from windlass.inference.prefetches.store import PrefetchStore
from windlass.inference.publishing import publish
from windlass.inference.routing import Routes
from windlass.inference.scheduler import InferenceScheduler
from windlass.inference.service import InferenceInternalServicer, InferenceServicer
from windlass.inference.servings.drafts import Drafts
from windlass.inference.servings.requests import ServingRequests
from windlass.inference.servings.store import ServingStore
from windlass.inference.stacks.requests import StackRequests
from windlass.inference.stacks.store import StackStore
from windlass.inference.store import InferenceStore
from windlass.inference.trainings.checkpoints import CheckpointModels
from windlass.inference.trainings.holds import EngineHoldStore
from windlass.inference.trainings.requests import EngineTrainingRequests
from windlass.inference.trainings.run_requests import EngineRunRequests
from windlass.inference.trainings.run_store import EngineRunStore
from windlass.inference.trainings.scheduler import EngineTrainingScheduler
from windlass.inference.trainings.store import EngineTrainingStore
from windlass.inference.trainings.trainable import TrainableServings
from windlass.inference.trainings.workload import TrainingWorkloads
from windlass.inference.workloads import Workloads

POLL_SECONDS = 1.0


async def build(app: App) -> None:
    """Constructs and registers inference."""
    settings, presign = app.settings.inference, app.settings.objects.presign_seconds
    models = app.clients.stub(models_pb2_grpc.ModelsInternalServiceStub)
    clusters = app.clients.stub(clusters_pb2_grpc.ClustersInternalServiceStub)
    planning, publishing = app.wake.listen("inference"), app.wake.listen("inference")
    prefetching, training = app.wake.listen("inference"), app.wake.listen("inference")

    def changed() -> None:
        planning.set()
        publishing.set()
        prefetching.set()
        training.set()

    store, routes = InferenceStore(app.database, Quotas(app.settings.quotas)), Routes()
    sessions = app.clients.stub(sessions_pb2_grpc.SessionsInternalServiceStub)
    followed = FollowedRuns(app.clients.stub_or_none(publishing_pb2_grpc.PublishingServiceStub))
    observed = ObservedState(
        Names(models, changed), clusters, sessions, changed, engine=settings.engine
    )
    policy = InferencePolicy(
        engine=settings.engine,
        max_engines=settings.max_engines,
        max_adapters=settings.max_adapters,
        idle_seconds=settings.idle_seconds,
        url_seconds=presign / 2,
        scale_down_seconds=settings.scale_down_seconds,
    )
    workloads = Workloads(
        models,
        app.objects,
        followed,
        presign_seconds=presign,
        max_adapters=settings.max_adapters,
    )
    prefetches = PrefetchStore(app.database, Quotas(app.settings.quotas))
    trainings = EngineTrainingStore(app.database, Quotas(app.settings.quotas))
    scheduler = InferenceScheduler(
        store, observed, clusters, workloads, prefetches, trainings, followed, policy,
        lambda: app.wake.touch("inference"),
    )  # fmt: skip
    servings = ServingStore(app.database, Quotas(app.settings.quotas))
    users = app.clients.stub(users_pb2_grpc.UsersInternalServiceStub)
    archived = ArchivedProjects(servings, users, app.wake)
    erases(app, CLAIMS, EnginesEnd(app.database, app.wake))
    exports_by(app, CLAIMS)
    drafts = Drafts(models, app.objects)
    requests = ServingRequests(
        store, servings, observed, models, drafts, followed, app.wake, policy
    )
    envelope = app.keyring.envelope(STACK_KEYS)
    stacks = StackRequests(StackStore(app.database), models, envelope, app.wake)
    wished = PrefetchRequests(prefetches, servings, observed, models, app.wake)
    holds = EngineHoldStore(app.database)
    trainable = TrainableServings(servings, models)
    taught = EngineTrainingRequests(trainings, trainable, holds, app.wake)
    build_feeds(app, trainable, trainings, holds)
    app.serve(
        InferenceServicer(store, observed, models, requests, stacks, wished, taught),
        rpc.add_InferenceServiceServicer_to_server,
    )
    internal = InferenceInternalServicer(
        store,
        servings,
        routes,
        models,
        LoadStore(app.database),
        EngineRunRequests(
            trainings, EngineRunStore(app.database), holds, servings, models, app.wake
        ),
        app.wake,
    )
    app.serve(internal, rpc.add_InferenceInternalServiceServicer_to_server)
    app.background("inference.observed", observed.run)
    for follower in observed.followers:
        app.add_check(f"inference.{follower.name}", follower.check)
    app.background(
        "inference.routes",
        lambda: publish(store, observed, routes, publishing, engine=settings.engine),
    )
    app.background(
        "inference.archived_projects",
        lambda: run_loop(
            "inference.archived_projects",
            app.wake.listen("projects"),
            archived.once,
            poll_seconds=ARCHIVED_POLL_SECONDS,
            resting=servings.is_empty,
        ),
    )
    app.background(
        "inference.engines",
        lambda: run_loop(
            "inference.engines",
            planning,
            scheduler.once,
            poll_seconds=POLL_SECONDS,
            resting=store.is_empty,
        ),
    )
    fetching = PrefetchScheduler(
        prefetches, observed, clusters, workloads, url_seconds=policy.url_seconds
    )
    app.background(
        "inference.prefetches",
        lambda: run_loop(
            "inference.prefetches",
            prefetching,
            fetching.once,
            poll_seconds=POLL_SECONDS,
            resting=prefetches.is_settled,
        ),
    )
    orders = TrainingWorkloads(workloads, app.objects, presign_seconds=presign)
    teaching = EngineTrainingScheduler(
        trainings,
        store,
        observed,
        clusters,
        app.clients.stub(usage_pb2_grpc.UsageInternalServiceStub),
        orders,
        CheckpointModels(orders, app.objects, models),
        url_seconds=policy.url_seconds,
    )
    app.background(
        "inference.trainings",
        lambda: run_loop(
            "inference.trainings",
            training,
            teaching.once,
            poll_seconds=POLL_SECONDS,
            resting=trainings.is_settled,
        ),
    )
