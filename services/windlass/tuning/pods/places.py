"""Clusters in which a project's pods train, and where in them."""

from dataclasses import dataclass

import grpc

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.clusters.v1.clusters_pb2_grpc import ClustersInternalServiceAsyncStub
from windlass.core.db.paging import whole
from windlass.core.errors import from_rpc
from windlass.core.suggestions import did_you_mean
from windlass.tuning_api.trainers.seats import SeatAwaited, SeatRefused

_ENGINES = "engines"


@dataclass(frozen=True, slots=True)
class TrainingPlace:
    """A cluster, and what a project has there."""

    cluster: pb.Cluster
    assignment: pb.Assignment


class TrainingClusters:
    """Reads where projects may train."""

    def __init__(self, clusters: ClustersInternalServiceAsyncStub):
        self._clusters = clusters

    async def place(self, name: str, project_id: str) -> TrainingPlace:
        """The place of a project in a cluster that has this name or id.

        Raises SeatRefused for one that is none, SeatAwaited while that is not known.
        """
        try:
            request = pb.ListCapacityRequest()
            found = await whole(self._clusters.ListCapacity(request), pb.ListCapacityResponse())
        except grpc.aio.AioRpcError as error:
            raise SeatAwaited(from_rpc(error).message) from error
        here = {
            one.cluster_id: one
            for one in found.assignments
            if one.project_id == project_id and not one.removing
        }
        # No word of clusters that the project has no part in.
        known = [one for one in found.clusters if one.id in here]
        cluster = next((one for one in known if name in (one.name, one.id)), None)
        if cluster is None:
            names = [one.name for one in known if one.capacity.trains]
            hint = did_you_mean(name, names)
            raise SeatRefused(f"No cluster that this project trains in is named {name!r}.{hint}")
        if not cluster.capacity.trains or _ENGINES not in cluster.roles:
            raise SeatRefused(f"The cluster {cluster.name} trains nothing.")
        if not here[cluster.id].ready:
            raise SeatAwaited(f"The project's namespace in {cluster.name} is being set up.")
        return TrainingPlace(cluster, here[cluster.id])
