"""Builds the jobs service."""

from functools import partial

import sqlalchemy as sa

from windlass.api.clusters.v1.clusters_pb2_grpc import ClustersInternalServiceStub
from windlass.api.files.v1.files_pb2_grpc import FilesInternalServiceStub
from windlass.api.gateway.v1.gateway_pb2_grpc import GatewayInternalServiceStub
from windlass.api.jobs.v1 import jobs_pb2_grpc as rpc
from windlass.api.models.v1.models_pb2_grpc import ModelsInternalServiceStub
from windlass.api.usage.v1.usage_pb2_grpc import UsageInternalServiceStub
from windlass.api.users.v1.users_pb2_grpc import UsersInternalServiceStub
from windlass.core.app import App
from windlass.core.db.leases import no_rows, run_loop
from windlass.core.exporting.exporter import exports_by
from windlass.core.leaving.eraser import erases
from windlass.core.leaving.tables import OPEN
from windlass.core.outbound.receivers import Receivers
from windlass.core.outbound.urls import AddressRules
from windlass.core.quotas import Quotas
from windlass.jobs.attempts.artifacts import ArtifactStore
from windlass.jobs.attempts.grading import Grading
from windlass.jobs.attempts.retention import Retention, installed
from windlass.jobs.attempts.run_inputs import RunInputs
from windlass.jobs.attempts.store import AttemptStore
from windlass.jobs.attempts.uploads import Uploads
from windlass.jobs.creation.admission import JobAdmission
from windlass.jobs.creation.input_files import InputFiles
from windlass.jobs.domain.job import TERMINAL
from windlass.jobs.effects.handlers import EffectHandlers
from windlass.jobs.effects.liveness import LivenessSweeper, LostAfter
from windlass.jobs.effects.statuses import JobStatuses
from windlass.jobs.leaving import CLAIMS, LeavingJobs
from windlass.jobs.scheduler import JobScheduler
from windlass.jobs.scheduling.capacity import Capacity
from windlass.jobs.scheduling.decisions import DecisionStore
from windlass.jobs.scheduling.explaining import Explanations
from windlass.jobs.scheduling.placement import JobPlacer
from windlass.jobs.storage.event_feeds import EventFeeds
from windlass.jobs.storage.history import HistoryStore
from windlass.jobs.storage.logs import LogStore
from windlass.jobs.storage.measuring import JobCounts
from windlass.jobs.storage.outbox import Outbox
from windlass.jobs.storage.store import (
    WAKE_OUTBOX,
    WAKE_PLACEMENT,
    WAKE_VALIDATING,
    WAKE_WORKLOADS,
    JobStore,
)
from windlass.jobs.storage.tables import jobs as job_rows
from windlass.jobs.storage.tables import outbox
from windlass.jobs.tracking.trackers import Trackers
from windlass.jobs.transport.agent_service import JobsAgentServicer
from windlass.jobs.transport.service import JobsInternalServicer, JobsServicer
from windlass.jobs.transport.stream_quota import EventStreams
from windlass.jobs.webhooks.deliveries import Deliveries
from windlass.jobs.webhooks.service import WebhooksServicer
from windlass.jobs.webhooks.store import WebhookStore
from windlass.workload_statuses import StatusFollower


async def build(app: App) -> None:
    """Serves jobs, and runs their loops."""
    files = app.clients.stub(FilesInternalServiceStub)
    models = app.clients.stub(ModelsInternalServiceStub)
    quotas = Quotas(app.settings.quotas)
    store = JobStore(app.database, app.wake, quotas)
    app.on_stop(store.close)
    history = HistoryStore(app.database, EventFeeds(app.database, app.wake))
    artifacts = ArtifactStore(app.database)
    logs = LogStore(app.database, app.objects, store, app.wake)
    attempts = AttemptStore(store, artifacts, max_attempts=app.settings.jobs.max_attempts)
    uploads = Uploads(attempts, artifacts, app.objects)
    capacity = Capacity(app.database, app.clients.stub(ClustersInternalServiceStub))
    trackers = Trackers(
        app.clients.stub(UsersInternalServiceStub),
        allowed=app.settings.tracking.allowed,
        wandb_url=app.settings.tracking.wandb_url,
    )
    grading = Grading(app.clients.stub_or_none(GatewayInternalServiceStub))
    input_files = InputFiles(files)
    admission = JobAdmission(
        input_files,
        models,
        app.objects,
        capacity,
        trackers,
        default_backend=app.settings.jobs.default_backend,
        default_gpus=app.settings.jobs.default_gpus,
        asks_models=grading.is_possible,
        runs_python=app.settings.graders.python,
    )
    inputs = RunInputs(
        artifacts,
        app.objects,
        files,
        models,
        trackers,
        read_seconds=app.settings.objects.read_seconds,
        write_seconds=app.settings.objects.presign_seconds,
    )
    agents = JobsAgentServicer(attempts, inputs, uploads, logs, grading)
    # Twice, so that an agent that drains to the last second is still heard.
    grace_ms = int(2000 * app.settings.jobs.drain_seconds)
    explanations = Explanations(app.database, quotas, DecisionStore(app.database), capacity)
    streams = EventStreams(app.database, quotas, app.wake)
    app.background("jobs streams", streams.run)
    app.on_stop(streams.close)
    jobs = JobsServicer(
        store, history, logs, admission, explanations, capacity, streams, grace_ms=grace_ms
    )
    app.serve(jobs, rpc.add_JobsServiceServicer_to_server)
    app.serve(JobsInternalServicer(store, capacity), rpc.add_JobsInternalServiceServicer_to_server)
    app.serve(agents, rpc.add_JobsAgentServiceServicer_to_server)
    _leaving(app, LeavingJobs(app.database, store, grace_ms=grace_ms))
    app.exposition.sample("jobs", JobCounts(app.database).take)
    deliveries = _webhooks(app, store)
    _loops(app, store, artifacts, input_files, capacity, deliveries)


def _leaving(app: App, leaving: LeavingJobs) -> None:
    name = "jobs leaving"
    loop = partial(
        run_loop,
        name,
        app.wake.listen("projects"),
        leaving.once,
        resting=no_rows(app.database, OPEN),
    )
    app.background(name, loop)
    erases(app, CLAIMS, leaving.ended)
    exports_by(app, CLAIMS)


def _webhooks(app: App, store: JobStore) -> Deliveries:
    settings = app.settings.webhooks
    rules = AddressRules(settings.allowed_networks, allow_http=settings.allow_http)
    webhooks = WebhookStore(app.database, app.keyring.envelope("webhooks' secrets"))
    receivers = Receivers(rules)
    app.on_stop(receivers.close)
    servicer = WebhooksServicer(webhooks, rules, receivers)
    app.serve(servicer, rpc.add_WebhooksServiceServicer_to_server)
    return Deliveries(
        app.database,
        store,
        webhooks,
        receivers,
        app.clients.stub(UsersInternalServiceStub),
        retry_seconds=settings.retry_seconds,
    )


def _loops(
    app: App,
    store: JobStore,
    artifacts: ArtifactStore,
    files: InputFiles,
    capacity: Capacity,
    deliveries: Deliveries,
) -> None:
    most = app.settings.jobs.max_attempts
    clusters = app.clients.stub(ClustersInternalServiceStub)
    models = app.clients.stub(ModelsInternalServiceStub)
    handlers = EffectHandlers(
        artifacts,
        app.objects,
        clusters,
        models,
        app.clients.stub(FilesInternalServiceStub),
        app.clients.stub(UsageInternalServiceStub),
        Retention(artifacts, models, installed(app.settings.jobs)),
        max_attempts=most,
    )
    # Of their own, so that a slow receiver of anything else keeps no workload waiting.
    workloads = Outbox(app.database, store, handlers.workloads(), handlers.refused)
    others = Outbox(app.database, store, handlers.others(), handlers.refused)
    sweeper = LivenessSweeper(
        app.database,
        store,
        lost_after=LostAfter.of(app.settings),
        max_attempts=most,
    )
    placement = JobPlacer(app.database, app.wake, workloads, Quotas(app.settings.quotas))
    scheduler = JobScheduler(app.database, store, files, capacity, placement, sweeper)
    alive = job_rows.c.state < sa.literal_column(f"{min(TERMINAL):d}")
    resting = no_rows(app.database, alive, sa.and_(outbox.c.id > 0, sa.literal_column("NOT done")))
    app.background("jobs webhooks", partial(deliveries.run, app.wake))
    statuses = StatusFollower("jobs", clusters, JobStatuses(store, max_attempts=most).apply)
    app.background("jobs statuses", statuses.follower.run)
    app.add_check("jobs.statuses", statuses.follower.check)
    for name, once, topic, poll_seconds in (
        ("jobs validating", scheduler.validate, WAKE_VALIDATING, 2.0),
        ("jobs placement", scheduler.place, WAKE_PLACEMENT, 1.0),
        ("jobs workloads", workloads.deliver_batch, WAKE_WORKLOADS, 1.0),
        ("jobs outbox", others.deliver_batch, WAKE_OUTBOX, 1.0),
        ("jobs liveness", scheduler.sweep, "clusters", 2.0),
    ):
        loop = partial(
            run_loop, name, app.wake.listen(topic), once, poll_seconds=poll_seconds, resting=resting
        )
        app.background(name, loop)
