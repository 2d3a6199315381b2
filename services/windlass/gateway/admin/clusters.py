"""/v1/clusters and /v1/engines."""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import Field

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.clusters.v1 import clusters_pb2_grpc as rpc
from windlass.api.inference.v1 import inference_pb2, inference_pb2_grpc
from windlass.core.app import App
from windlass.gateway.admin.queues import render_cohort, render_queue
from windlass.gateway.openai.rendering import Json, page
from windlass.gateway.parameters import Body
from windlass.gateway.plain import plain


class RegisterCluster(Body):
    """A cluster that an agent will enrol for."""

    name: Annotated[str, Field(min_length=1, max_length=200)]


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


def clusters_router(app: App) -> APIRouter:
    """Clusters, and the engines that run there."""
    router = APIRouter(tags=["clusters"])
    clusters = app.clients.stub(rpc.ClustersServiceStub)
    inference = app.clients.stub(inference_pb2_grpc.InferenceServiceStub)

    @router.post("/clusters")
    async def register_cluster(body: RegisterCluster) -> Json:
        """Registers a cluster; its `registration_key` is shown here alone."""
        answer = await clusters.RegisterCluster(pb.RegisterClusterRequest(name=body.name))
        return {
            **plain(answer.cluster, "cluster"),
            "registration_key": answer.registration_key,
        }

    @router.post("/clusters/{cluster_id}/registration_keys")
    async def rekey_cluster(cluster_id: str) -> Json:
        """A new `registration_key` for a cluster that is there, shown here alone."""
        answer = await clusters.RekeyCluster(pb.RekeyClusterRequest(cluster_id=cluster_id))
        return {
            **plain(answer.cluster, "cluster"),
            "registration_key": answer.registration_key,
        }

    @router.get("/clusters")
    async def list_clusters() -> Json:
        """Clusters, with capacity and liveness."""
        answer = await clusters.ListClusters(pb.ListClustersRequest())
        return page([plain(cluster, "cluster") for cluster in answer.clusters])

    @router.get("/clusters/{cluster_id}")
    async def get_cluster(cluster_id: str) -> Json:
        """One cluster."""
        return plain(
            await clusters.GetCluster(pb.GetClusterRequest(cluster_id=cluster_id)), "cluster"
        )

    @router.get("/clusters/{cluster_id}/inventory")
    async def get_inventory(cluster_id: str) -> Json:
        """What it has, by kind of object (platform administrators)."""
        request = pb.GetInventoryRequest(cluster_id=cluster_id)
        return render_inventory(await clusters.GetInventory(request))

    @router.delete("/clusters/{cluster_id}")
    async def unregister_cluster(cluster_id: str) -> Json:
        """Revokes the agent's credential and forgets the cluster."""
        await clusters.UnregisterCluster(pb.UnregisterClusterRequest(cluster_id=cluster_id))
        return {"id": cluster_id, "object": "cluster", "deleted": True}

    @router.get("/engines")
    async def list_engines() -> Json:
        """Engines that serve models of the caller."""
        answer = await inference.ListEngines(inference_pb2.ListEnginesRequest())
        return page([plain(engine, "engine") for engine in answer.engines])

    return router
