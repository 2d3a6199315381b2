"""/v1/clusters and /v1/engines."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import Field

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.clusters.v1 import clusters_pb2_grpc as rpc
from windlass.api.inference.v1 import inference_pb2, inference_pb2_grpc
from windlass.bounds import ADDRESS_LENGTH, GEOGRAPHY_PATTERN, MAX_ADDRESSES, MAX_SLOTS
from windlass.core.app import App
from windlass.gateway.admin.queues import render_cohort, render_queue
from windlass.gateway.openai.rendering import Json, page
from windlass.gateway.parameters import After, Body, Limit
from windlass.gateway.plain import plain
from windlass.gateway.resource_router import ResourceRouter
from windlass.kubernetes.names import LABEL_LENGTH

Address = Annotated[str, Field(min_length=1, max_length=ADDRESS_LENGTH)]
Slots = Annotated[int, Field(ge=0, le=MAX_SLOTS)]


class ClusterPolicy(Body):
    """The operator's policy for a cluster; it overrides what the agent reports."""

    executor: Literal["process", "kubernetes"] | None = None
    roles: list[Literal["jobs", "engines"]] | None = None
    shared: bool | None = None
    addresses: Annotated[list[Address], Field(max_length=MAX_ADDRESSES)] | None = None
    max_slots: Slots | None = None
    max_engine_slots: Slots | None = None
    # Empty takes the label away.
    geography: Annotated[str, Field(pattern=f"{GEOGRAPHY_PATTERN}|^$")] | None = None

    def fields(self) -> list[str]:
        """Names of the fields that were given."""
        return [name for name in ClusterPolicy.model_fields if getattr(self, name) is not None]

    def message(self) -> pb.ClusterPolicy:
        """The given fields as a message of the clusters service."""
        return pb.ClusterPolicy(**{name: getattr(self, name) for name in self.fields()})


class RegisterCluster(ClusterPolicy):
    """A cluster that an agent will enrol for."""

    name: Annotated[str, Field(min_length=1, max_length=LABEL_LENGTH)]


# Where objects of a kind lie in an inventory.
_PLACES = {
    "node": "nodes",
    "device_class": "device_classes",
    "cluster_queue": "cluster_queues",
    "local_queue": "local_queues",
    "flavor": "flavors",
    "cohort": "cohorts",
    "priority_class": "priority_classes",
}

_RENDER: dict[str, Callable[[Any], Json]] = {"cluster_queue": render_queue, "cohort": render_cohort}


def render_inventory(found: pb.Inventory) -> Json:
    """An inventory by kinds; `pending` is wanted by pods of no node, `missing` cannot be seen."""
    kinds: dict[str, list[Json]] = {place: [] for place in _PLACES.values()}
    pending: dict[str, int] = {}
    missing: dict[str, str] = {}
    for item in found.items:
        kind, name = item.WhichOneof("object"), item.key.partition("/")[2]
        if kind == "missing":
            missing[name] = item.missing
        elif item.key.startswith("pending/"):
            pending[name] = item.device_class.pending
        elif kind in _PLACES:
            render = _RENDER.get(kind, plain)
            kinds[_PLACES[kind]].append(render(getattr(item, kind)))
    head = {"id": found.cluster_id, "object": "cluster.inventory"}
    at = {"observed_at": found.observed_at or None}
    return {**head, **at, **kinds, "pending": pending, "missing": missing}


def clusters_router(app: App) -> ResourceRouter:
    """Clusters, and the engines that run there."""
    router = ResourceRouter(tags=["clusters"])
    clusters = app.clients.stub(rpc.ClustersServiceStub)
    inference = app.clients.stub(inference_pb2_grpc.InferenceServiceStub)

    @router.post("/clusters")
    async def register_cluster(body: RegisterCluster) -> Json:
        """Registers a cluster; its `registration_key` is shown only here."""
        request = pb.RegisterClusterRequest(name=body.name, policy=body.message())
        answer = await clusters.RegisterCluster(request)
        return {
            **plain(answer.cluster, "cluster"),
            "registration_key": answer.registration_key,
        }

    @router.post("/clusters/{cluster_id}/registration_keys")
    async def rekey_cluster(cluster_id: str) -> Json:
        """Issues a new `registration_key` for a cluster, shown only here."""
        answer = await clusters.RekeyCluster(pb.RekeyClusterRequest(cluster_id=cluster_id))
        return {
            **plain(answer.cluster, "cluster"),
            "registration_key": answer.registration_key,
        }

    @router.get("/clusters")
    async def list_clusters(after: After = "", limit: Limit = 0) -> Json:
        """Clusters, with capacity and liveness."""
        answer = await clusters.ListClusters(pb.ListClustersRequest(after=after, limit=limit))
        return page([plain(cluster, "cluster") for cluster in answer.clusters], answer.has_more)

    @router.get("/clusters/{cluster_id}")
    async def get_cluster(cluster_id: str) -> Json:
        """Returns one cluster."""
        return plain(
            await clusters.GetCluster(pb.GetClusterRequest(cluster_id=cluster_id)), "cluster"
        )

    @router.patch("/clusters/{cluster_id}")
    async def update_cluster(cluster_id: str, body: ClusterPolicy) -> Json:
        """Changes a cluster's policy; fields left out stay."""
        request = pb.UpdateClusterRequest(
            cluster_id=cluster_id, policy=body.message(), fields=body.fields()
        )
        return plain(await clusters.UpdateCluster(request), "cluster")

    @router.get("/clusters/{cluster_id}/inventory")
    async def get_inventory(cluster_id: str) -> Json:
        """Lists a cluster's inventory by kind of object (platform administrators)."""
        request = pb.GetInventoryRequest(cluster_id=cluster_id)
        return render_inventory(await clusters.GetInventory(request))

    @router.delete("/clusters/{cluster_id}")
    async def unregister_cluster(cluster_id: str) -> Json:
        """Revokes the agent's credential and forgets the cluster."""
        await clusters.UnregisterCluster(pb.UnregisterClusterRequest(cluster_id=cluster_id))
        return {"id": cluster_id, "object": "cluster", "deleted": True}

    @router.get("/engines")
    async def list_engines(after: After = "", limit: Limit = 0) -> Json:
        """Engines that serve models of the caller."""
        request = inference_pb2.ListEnginesRequest(after=after, limit=limit)
        answer = await inference.ListEngines(request)
        return page([plain(engine, "engine") for engine in answer.engines], answer.has_more)

    return router
