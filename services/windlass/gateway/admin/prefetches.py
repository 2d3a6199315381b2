"""/v1/prefetches: files of models that clusters bring before anyone asks."""

from typing import Annotated

from pydantic import Field

from windlass.api.clusters.v1 import clusters_pb2, clusters_pb2_grpc
from windlass.api.inference.v1 import inference_pb2 as pb
from windlass.api.inference.v1 import inference_pb2_grpc as rpc
from windlass.bounds import MAX_CLUSTERS
from windlass.core.app import App
from windlass.core.ids import IDENTIFIER_LENGTH
from windlass.gateway.openai.rendering import Json, page
from windlass.gateway.parameters import After, Body, Limit
from windlass.gateway.plain import plain
from windlass.gateway.resource_router import ResourceRouter
from windlass.modelfiles.naming import ID_LENGTH

ClusterId = Annotated[str, Field(max_length=IDENTIFIER_LENGTH, pattern=r"^[A-Za-z0-9._-]+$")]


class PutPrefetch(Body):
    """A model, and the clusters that are to have its files."""

    model: Annotated[str, Field(min_length=1, max_length=ID_LENGTH)]
    clusters: Annotated[
        list[ClusterId],
        Field(
            max_length=MAX_CLUSTERS,
            description="Ids; empty: every cluster that is connected, runs engines of the model "
            "and keeps models.",
        ),
    ] = []


def prefetches_router(app: App) -> ResourceRouter:
    """Prefetches."""
    router = ResourceRouter(prefix="/prefetches", tags=["models"])
    inference = app.clients.stub(rpc.InferenceServiceStub)
    clusters = app.clients.stub(clusters_pb2_grpc.ClustersServiceStub)

    @router.get("")
    async def list_prefetches(after: After = "", limit: Limit = 0) -> Json:
        """Lists the project's prefetches, newest first; a week after its end one is forgotten."""
        answer = await inference.ListPrefetches(pb.ListPrefetchesRequest(after=after, limit=limit))
        return page([plain(one, "prefetch") for one in answer.prefetches], answer.has_more)

    @router.post("")
    async def put_prefetch(body: PutPrefetch) -> Json:
        """Has clusters bring a model's files; those that are on their way or there stay so."""
        for cluster_id in body.clusters:
            # Refuses one that is not there, or not for the project.
            await clusters.GetCluster(clusters_pb2.GetClusterRequest(cluster_id=cluster_id))
        request = pb.PutPrefetchRequest(model=body.model, cluster_ids=body.clusters)
        answer = await inference.PutPrefetch(request)
        return page([plain(one, "prefetch") for one in answer.prefetches])

    return router
