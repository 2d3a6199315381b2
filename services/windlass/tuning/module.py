"""Builds the tuning service."""

from functools import partial

import sqlalchemy as sa

from windlass.api.gateway.v1.gateway_pb2_grpc import GatewayInternalServiceStub
from windlass.api.inference.v1.inference_pb2_grpc import InferenceInternalServiceStub
from windlass.api.models.v1.models_pb2_grpc import ModelsInternalServiceStub
from windlass.api.tuning.v1 import seats_pb2_grpc as seats_rpc
from windlass.api.tuning.v1 import transfer_pb2_grpc as transfer_rpc
from windlass.api.tuning.v1 import tuning_pb2_grpc as rpc
from windlass.api.usage.v1.usage_pb2_grpc import UsageInternalServiceStub
from windlass.core.app import App, runtime_dir
from windlass.core.db.leases import no_rows, run_loop
from windlass.core.exporting.exporter import exports_by
from windlass.core.leaving.eraser import erases
from windlass.core.quotas import Quotas
from windlass.tuning.blobs import Blobs
from windlass.tuning.ending import SamplerEnds
from windlass.tuning.execution.executor import LogExecutor
from windlass.tuning.execution.folders import CheckpointFolders
from windlass.tuning.execution.runs import RunWorker
from windlass.tuning.execution.samples import SampleWorker
from windlass.tuning.full_parameters import FullParameterBounds
from windlass.tuning.in_engine.admission import EngineRuns
from windlass.tuning.in_engine.composed import TrainersAndEngines
from windlass.tuning.in_engine.trainer import EngineTrainer
from windlass.tuning.inbox import Inboxes, SampleDesk
from windlass.tuning.leases.assembly import cluster_training_of
from windlass.tuning.leaving import CLAIMS
from windlass.tuning.publishing.assembly import serve_publishing
from windlass.tuning.replaying.replayer import Replayer
from windlass.tuning.results import ResultBoard
from windlass.tuning.sampler_requests import SamplerRequests
from windlass.tuning.samplers import ChosenSampler
from windlass.tuning.samplers.engine_of_run import EngineOfRunSampler
from windlass.tuning.seats.assembly import seating_of
from windlass.tuning.seats.lines import WaitingReasons
from windlass.tuning.seats.servicer import SeatsServicer
from windlass.tuning.service import WAKE_OVER, TuningServicer
from windlass.tuning.storage.bounds import TuningBounds
from windlass.tuning.storage.checkpoints import WeightsStore
from windlass.tuning.storage.execution import ExecutionStore
from windlass.tuning.storage.history import RunHistory
from windlass.tuning.storage.log import QUEUED
from windlass.tuning.storage.losses import LossStore
from windlass.tuning.storage.owing import ANY, OwedUsageStore
from windlass.tuning.storage.runs import RunStore
from windlass.tuning.storage.searching import SessionSearch
from windlass.tuning.storage.sessions import TuningSessionStore
from windlass.tuning.storage.sweeping import SweepStore
from windlass.tuning.storage.tables import sessions
from windlass.tuning.submission import Submission
from windlass.tuning.sweeping import Sweeper
from windlass.tuning.telling import TELL_SECONDS, UsageTeller
from windlass.tuning.transfer.copy_store import CopyStore
from windlass.tuning.transfer.copying import CheckpointCopies
from windlass.tuning.transfer.downloads import CheckpointDownloads
from windlass.tuning.transfer.registration import CheckpointRegistration
from windlass.tuning.transfer.service import TransferServicer
from windlass.tuning.transfer.sharing import SharedWork
from windlass.tuning.transfer.traces import SessionTraces
from windlass.tuning_api.trainers.making import make_trainer
from windlass.tuning_api.trainers.port import Trainer

SWEEP_SECONDS = 2.0
# Nobody waits for it; a round a second takes all that came since.
WAKE_USAGE = "tuning usage"


async def build(app: App) -> None:
    """Constructs and registers tuning."""
    settings = app.settings.tuning
    checkpoint_folder = app.settings.data_dir / "tuning"
    seating = await seating_of(app, settings) if settings.trainer == "lora" else None
    clusters = cluster_training_of(app, settings.seats)
    made = make_trainer(
        settings, checkpoint_folder, runtime_dir(app.settings.data_dir), seating, clusters.elsewhere
    )
    engines = app.clients.stub_or_none(InferenceInternalServiceStub)
    trainer = made if engines is None else TrainersAndEngines(made, EngineTrainer(engines))
    app.on_stop(trainer.stop)
    bounds = TuningBounds(
        app.database, Quotas(app.settings.quotas), session_seconds=settings.session_seconds
    )
    sessions_store = TuningSessionStore(app.database)
    checkpoints, runs = WeightsStore(app.database, bounds), RunStore(app.database, bounds)
    blobs, board = Blobs(app.objects), ResultBoard(app.database, app.wake)
    inboxes, desk = Inboxes(), SampleDesk()
    losses = LossStore(app.database, bounds)
    submission = Submission(
        sessions_store, runs, checkpoints, losses, trainer, blobs, board, inboxes, desk, app.wake,
        FullParameterBounds.of(settings), EngineRuns(engines),
    )  # fmt: skip
    folders = CheckpointFolders(checkpoint_folder, blobs)
    app.on_stop(folders.close)
    replayer = Replayer(
        runs,
        sessions_store,
        checkpoints,
        RunHistory(app.database),
        submission,
        trainer,
        blobs,
        folders,
    )
    app.serve(
        TuningServicer(
            sessions_store,
            runs,
            checkpoints,
            SessionSearch(app.database),
            submission,
            SamplerRequests(
                sessions_store, checkpoints, SamplerEnds(app.database, board), trainer.base_models
            ),
            replayer,
            trainer,
            WaitingReasons(
                app.database, clusters.reason, full_trainers=settings.full_parameter_trainers
            ),
            app.wake,
            settings,
        ),
        rpc.add_TuningServiceServicer_to_server,
    )
    serve_publishing(app, checkpoints, folders)
    _serve_transfers(app, sessions_store, checkpoints, bounds, trainer)
    app.serve(SeatsServicer(app.database), seats_rpc.add_SeatsServiceServicer_to_server)
    erases(app, CLAIMS)
    exports_by(app, CLAIMS)
    app.background("tuning.results", board.run)
    store = ExecutionStore(app.database, full_trainers=settings.full_parameter_trainers)
    gateway = app.clients.stub_or_none(GatewayInternalServiceStub)
    sampler = ChosenSampler(
        trainer,
        settings.samplers,
        settings.sampler_adapters,
        None if gateway is None else EngineOfRunSampler(gateway),
    )
    app.on_stop(sampler.close)
    executor = LogExecutor(
        store,
        RunWorker(
            store,
            checkpoints,
            trainer,
            blobs,
            folders,
            snapshot_operations=settings.snapshot_operations,
        ),
        SampleWorker(store, sessions_store, checkpoints, trainer, sampler, blobs, folders),
        blobs,
        board,
        inboxes,
        desk,
        app.wake,
        no_rows(app.database, QUEUED),
        lambda: clusters.room_is_wanted() or (seating is not None and seating.room_is_wanted()),
    )
    app.background("tuning.executor", executor.run)
    app.before_stop(executor.park_all)
    teller = UsageTeller(OwedUsageStore(app.database), app.clients.stub(UsageInternalServiceStub))
    app.background(
        "tuning.usage",
        partial(
            run_loop,
            "tuning.usage",
            app.wake.listen(WAKE_USAGE),
            teller.once,
            poll_seconds=TELL_SECONDS,
            resting=no_rows(app.database, ANY),
        ),
    )
    sweeper = Sweeper(
        SweepStore(app.database), executor, app.objects, blobs, folders, app.wake, settings
    )
    app.background(
        "tuning.sweeper",
        partial(
            run_loop,
            "tuning.sweeper",
            app.wake.listen(WAKE_OVER),
            sweeper.once,
            poll_seconds=SWEEP_SECONDS,
            resting=no_rows(app.database, sessions.c.id.is_not(sa.null())),
        ),
    )


def _serve_transfers(
    app: App,
    sessions_store: TuningSessionStore,
    checkpoints: WeightsStore,
    bounds: TuningBounds,
    trainer: Trainer,
) -> None:
    shared = SharedWork()
    app.on_stop(shared.close)
    app.serve(
        TransferServicer(
            sessions_store,
            checkpoints,
            CheckpointCopies(CopyStore(app.database, bounds), app.objects, trainer, shared),
            CheckpointDownloads(app.objects, checkpoints, shared),
            SessionTraces(app.database, app.objects),
            CheckpointRegistration(
                checkpoints, app.objects, app.clients.stub(ModelsInternalServiceStub)
            ),
        ),
        transfer_rpc.add_TransferServiceServicer_to_server,
    )
