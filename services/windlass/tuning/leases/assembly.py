"""Builds what runs trainers in clusters, on leases where the operator shares devices."""

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from windlass.api.clusters.v1.clusters_pb2_grpc import ClustersInternalServiceStub
from windlass.api.models.v1.models_pb2_grpc import ModelsInternalServiceStub
from windlass.core.app import App, runtime_dir
from windlass.core.config.tuning import SeatsSection
from windlass.core.db import Database
from windlass.core.db.wake import Wake
from windlass.core.ids import new_id
from windlass.tuning.leases.choosing import ChosenSeating
from windlass.tuning.leases.keeping import LeaseKeeper
from windlass.tuning.leases.seating import LeasedSeat, LeasedSeating, LeasedWork
from windlass.tuning.leases.terms import LeaseTerms
from windlass.tuning.pods.keeping import PodKeeper
from windlass.tuning.pods.places import TrainingClusters, TrainingPlace
from windlass.tuning.pods.seating import PodSeating
from windlass.tuning.pods.store import PodStore
from windlass.tuning.pods.workloads import PodWorkloads
from windlass.tuning.seats.assembly import takes_turns, turn_policy, turn_taking
from windlass.tuning.seats.identity import identity
from windlass.tuning.seats.ledger import Row, SeatLedger
from windlass.tuning.seats.queueing import WAKE_SEATS, SeatLines
from windlass.tuning_api.trainers.elsewhere import Elsewhere, PodPlace, PodWish
from windlass.tunnel.lanes import CarryStub, Lanes


@dataclass(frozen=True)
class ClusterTraining:
    """Processes of the tuning service in clusters."""

    # Makes places for them.
    elsewhere: Elsewhere
    # Tells of an operation why what it needs does not serve; None where it needs no pod.
    reason: Callable[[str, str], Awaitable[str | None]]
    # Whether somebody waits for room that this server has.
    room_is_wanted: Callable[[], bool]


def cluster_training_of(app: App, settings: SeatsSection) -> ClusterTraining:
    """Pods and leases, kept for as long as the process serves."""
    stub, presign = app.clients.stub, app.settings.objects.presign_seconds
    lanes = Lanes(app.clients.stub_at(CarryStub, app.clients.address("sessions")).start)
    app.on_stop(lanes.close)
    clusters = stub(ClustersInternalServiceStub)
    store = PodStore(app.database, new_id("lease_"))
    workloads = PodWorkloads(stub(ModelsInternalServiceStub), app.objects, presign_seconds=presign)
    keeper = PodKeeper(store, workloads, clusters, url_seconds=presign / 2)
    app.background("tuning.pods", keeper.run)
    leases = LeaseKeeper(store, keeper, ledgers(app.database, app.wake, settings, keeper))
    app.background("tuning.cluster_leases", leases.run)
    app.on_stop(leases.close)
    known, sockets = TrainingClusters(clusters), runtime_dir(app.settings.data_dir)
    work = LeasedWork(leases, store, workloads, keeper, lanes, sockets)

    def alone(wish: PodWish) -> PodSeating:
        return PodSeating(wish, known, store, workloads, keeper, lanes, sockets)

    def terms_of(place: TrainingPlace) -> LeaseTerms | None:
        return LeaseTerms.of(settings, place.cluster, takes_turns=takes_turns(settings))

    def chosen(wish: PodWish) -> PodPlace:
        return ChosenSeating(wish, known, terms_of, partial(LeasedSeating, work=work), alone)

    return ClusterTraining(
        chosen if settings.clusters else alone,
        leases.reason,
        lambda: keeper.room_is_wanted() or leases.room_is_wanted(),
    )


def ledgers(
    database: Database, wake: Wake, settings: SeatsSection, keeper: PodKeeper
) -> Callable[[str, str], tuple[SeatLedger, SeatLines]]:
    """Makes the ledger of a lease, and the lines in front of it."""
    taking = turn_taking(database, settings)

    def made(lease_id: str, cluster_id: str) -> tuple[SeatLedger, SeatLines]:
        ledger = SeatLedger(
            database,
            lease_id,
            identity(os.getpid()),
            takes_turns=takes_turns(settings),
            policy=turn_policy(settings),
        )

        def seat(seat_id: str, token: str, lease: Row) -> LeasedSeat:
            given = seat_id, token, lease.id, ledger, taking, wake.listen(WAKE_SEATS), lines.tell
            return LeasedSeat(*given, {}, keeper=keeper, cluster_id=cluster_id)

        lines = SeatLines(ledger, wake, seat)
        return ledger, lines

    return made
