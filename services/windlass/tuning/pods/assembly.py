"""Builds what runs trainers in clusters."""

from windlass.api.clusters.v1.clusters_pb2_grpc import ClustersInternalServiceStub
from windlass.api.models.v1.models_pb2_grpc import ModelsInternalServiceStub
from windlass.core.app import App, runtime_dir
from windlass.core.ids import new_id
from windlass.tuning.pods.keeping import PodKeeper
from windlass.tuning.pods.places import TrainingClusters
from windlass.tuning.pods.seating import PodSeating
from windlass.tuning.pods.store import PodStore
from windlass.tuning.pods.workloads import PodWorkloads
from windlass.tuning_api.trainers.elsewhere import Elsewhere, PodWish
from windlass.tunnel.lanes import CarryStub, Lanes


def pods_of(app: App) -> tuple[PodKeeper, Elsewhere]:
    """Keeper of pods for as long as the process serves, and maker of places for them."""
    stub, presign = app.clients.stub, app.settings.objects.presign_seconds
    lanes = Lanes(app.clients.stub_at(CarryStub, app.clients.address("sessions")).start)
    app.on_stop(lanes.close)
    clusters = stub(ClustersInternalServiceStub)
    store = PodStore(app.database, new_id("lease_"))
    workloads = PodWorkloads(stub(ModelsInternalServiceStub), app.objects, presign_seconds=presign)
    keeper = PodKeeper(store, workloads, clusters, url_seconds=presign / 2)
    app.background("tuning.pods", keeper.run)
    known, sockets = TrainingClusters(clusters), runtime_dir(app.settings.data_dir)

    def place(wish: PodWish) -> PodSeating:
        return PodSeating(wish, known, store, workloads, keeper, lanes, sockets)

    return keeper, place
