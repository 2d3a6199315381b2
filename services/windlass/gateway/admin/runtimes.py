"""/v1/runtimes: what a project can train with."""

from windlass.api.jobs.v1 import jobs_pb2 as pb
from windlass.api.jobs.v1 import jobs_pb2_grpc as rpc
from windlass.core.app import App
from windlass.gateway.openai.rendering import Json, page
from windlass.gateway.parameters import After, Limit
from windlass.gateway.resource_router import ResourceRouter


def runtimes_router(app: App) -> ResourceRouter:
    """Backends of the live clusters that the project may use."""
    router = ResourceRouter(prefix="/runtimes", tags=["fine-tuning"])
    jobs = app.clients.stub(rpc.JobsServiceStub)

    @router.get("")
    async def list_runtimes(after: After = "", limit: Limit = 0) -> Json:
        """Each backend, its methods, and the clusters that have it."""
        answer = await jobs.ListRuntimes(pb.ListRuntimesRequest(after=after, limit=limit))
        return page([_render(runtime) for runtime in answer.runtimes], answer.has_more)

    return router


def _render(runtime: pb.Runtime) -> Json:
    return {
        "id": runtime.name,
        "object": "runtime",
        "framework": runtime.framework,
        "schema_version": runtime.schema_version,
        "methods": list(runtime.methods),
        "clusters": [
            {
                "id": cluster.id,
                "name": cluster.name,
                "executor": cluster.executor,
                "gpus": cluster.gpus,
            }
            for cluster in runtime.clusters
        ],
    }
