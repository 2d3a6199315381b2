"""/v1/clusters and /v1/engines."""

from typing import Annotated

from fastapi import APIRouter
from pydantic import Field

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.clusters.v1 import clusters_pb2_grpc as rpc
from windlass.api.inference.v1 import inference_pb2, inference_pb2_grpc
from windlass.core.app import App
from windlass.gateway.openai.rendering import Json, page
from windlass.gateway.parameters import Body
from windlass.gateway.plain import plain


class RegisterCluster(Body):
    """A cluster that an agent will enrol for."""

    name: Annotated[str, Field(min_length=1, max_length=200)]


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
