"""/v1/servings: how models are served, whether or not somebody asks."""

from typing import Annotated

from pydantic import Field

from windlass.api.clusters.v1 import clusters_pb2, clusters_pb2_grpc
from windlass.api.inference.v1 import inference_pb2 as pb
from windlass.api.inference.v1 import inference_pb2_grpc as rpc
from windlass.bounds import (
    ACCELERATOR_LENGTH,
    MAX_CLUSTER_WEIGHT,
    MAX_CLUSTERS,
    MAX_ENGINE_GPUS,
    MAX_ENGINE_MEMORY,
    MAX_ENGINE_NODES,
    MAX_IDLE_SECONDS,
    MAX_REPLICAS,
    MAX_TARGET_CACHE,
    MAX_TARGET_GPU,
    MAX_TARGET_REQUESTS,
    MAX_TARGET_WAIT_SECONDS,
    TARGET_CACHE,
    EngineName,
    Priority,
    TrainingMode,
)
from windlass.core.app import App
from windlass.core.ids import IDENTIFIER_LENGTH
from windlass.engine_arguments import UNCHOSEN, EngineArguments, to_message
from windlass.gateway.openai.rendering import Json, page
from windlass.gateway.parameters import After, Body, Limit
from windlass.gateway.plain import plain
from windlass.gateway.resource_router import ResourceRouter
from windlass.serving_schedules import MAX_WINDOWS, ScheduleWindow, window_messages


class PutServing(Body):
    """Settings of how a model is served."""

    min_replicas: Annotated[
        int,
        Field(
            ge=0,
            le=MAX_REPLICAS,
            description="Engines that run whether or not somebody asks; 0: on demand.",
        ),
    ] = 1
    max_replicas: Annotated[
        int,
        Field(
            ge=0,
            le=MAX_REPLICAS,
            description="Engines that load may make of it; 0: no more than min_replicas.",
        ),
    ] = 0
    target_requests: Annotated[
        int,
        Field(
            ge=0,
            le=MAX_TARGET_REQUESTS,
            description="Open requests that each engine should have; 0: eight.",
        ),
    ] = 0
    target_cache: Annotated[
        int,
        Field(
            ge=0,
            le=MAX_TARGET_CACHE,
            description="Percent of each engine's room for keys and values that may be in use "
            "before load makes more engines; 0: however much is.",
        ),
    ] = TARGET_CACHE
    target_gpu: Annotated[
        int,
        Field(
            ge=0,
            le=MAX_TARGET_GPU,
            description="Percent of its GPUs' time that each engine may be busy before load makes "
            "more engines; 0: all of it.",
        ),
    ] = 0
    target_wait_seconds: Annotated[
        int,
        Field(
            ge=0,
            le=MAX_TARGET_WAIT_SECONDS,
            description="Seconds that requests may wait for a busy engine before load makes more; "
            "0: however long.",
        ),
    ] = 0
    schedule: Annotated[
        list[ScheduleWindow],
        Field(max_length=MAX_WINDOWS, description="Windows of time with more engines."),
    ] = []
    idle_seconds: Annotated[
        int,
        Field(
            ge=0,
            le=MAX_IDLE_SECONDS,
            description="Seconds without requests before what nobody keeps running ends, 60 at "
            "least; 0: the installation's.",
        ),
    ] = 0
    sleep_seconds: Annotated[
        int,
        Field(
            ge=0,
            le=MAX_IDLE_SECONDS,
            description="Seconds without requests before its engines sleep, 30 at least: each "
            "gives its device's memory back, keeps its place, and wakes for the next request; 0: "
            "they do not.",
        ),
    ] = 0
    clusters: Annotated[
        dict[
            Annotated[str, Field(max_length=IDENTIFIER_LENGTH, pattern=r"^[A-Za-z0-9._-]+$")],
            Annotated[int, Field(ge=1, le=MAX_CLUSTER_WEIGHT)],
        ],
        Field(
            max_length=MAX_CLUSTERS,
            description="Weights of the clusters where its engines may run, by id; empty: "
            "wherever they can.",
        ),
    ] = {}
    engine: Annotated[
        EngineName | None,
        Field(description="Kind of engine; the installation's if it is not set."),
    ] = None
    arguments: EngineArguments = UNCHOSEN
    gpus: Annotated[
        int,
        Field(
            ge=0,
            le=MAX_ENGINE_GPUS,
            description="GPUs of each engine, on each of its nodes; 0: what its machine gives to "
            "every engine.",
        ),
    ] = 0
    nodes: Annotated[
        int,
        Field(
            ge=0,
            le=MAX_ENGINE_NODES,
            description="Nodes that each engine runs on together; 0: one.",
        ),
    ] = 0
    accelerator: Annotated[
        str,
        Field(
            max_length=ACCELERATOR_LENGTH,
            description="Accelerator that each engine runs on, by a name that its cluster reports: "
            "a product, a resource, a device class or a flavor of Kueue; empty: any.",
        ),
    ] = ""
    memory_bytes: Annotated[
        int,
        Field(
            ge=0,
            le=MAX_ENGINE_MEMORY,
            description="Memory of each engine, on each of its nodes, 256 MiB at least; 0: by its "
            "kind and its weights.",
        ),
    ] = 0
    priority: Annotated[
        Priority,
        Field(
            description="Priority against other servings: of the project's engines those of a "
            "higher one start first and end last, and Kueue has a class for each."
        ),
    ] = "normal"
    dedicated: Annotated[
        bool,
        Field(
            description="Of a fine-tuned model: it has engines of its own, which run its base and "
            "serve it alone.",
        ),
    ] = False
    training: Annotated[
        TrainingMode,
        Field(
            description="How its one engine may be trained in its own memory: `hogwild` never "
            "pauses serving, `fenced` does for each step, `shadow` trains a copy and puts it in "
            "place; empty: not.",
        ),
    ] = ""
    follow: Annotated[
        str,
        Field(
            max_length=512,
            description="`tinker://RUN` of a full-parameter run: the engines take each version of "
            "its weights in place, without a restart; empty: none.",
        ),
    ] = ""


def _render(serving: pb.Serving) -> Json:
    # OpenAI's page cursors are ids.
    return {"id": serving.model, **plain(serving, "serving")}


def servings_router(app: App) -> ResourceRouter:
    """Servings."""
    router = ResourceRouter(prefix="/servings", tags=["models"])
    inference = app.clients.stub(rpc.InferenceServiceStub)
    clusters = app.clients.stub(clusters_pb2_grpc.ClustersServiceStub)

    @router.get("")
    async def list_servings(after: After = "", limit: Limit = 0) -> Json:
        """Lists how the project's models and those for everyone are served, by name."""
        answer = await inference.ListServings(pb.ListServingsRequest(after=after, limit=limit))
        return page([_render(serving) for serving in answer.servings], answer.has_more)

    # Names may have slashes.
    @router.put("/{model:path}")
    async def put_serving(model: str, body: PutServing) -> Json:
        """Sets how a model is served, by how many engines whether or not somebody asks."""
        request = pb.PutServingRequest(
            model=model,
            min_replicas=body.min_replicas,
            engine=body.engine or "",
            arguments=to_message(body.arguments),
            gpus=body.gpus,
            nodes=body.nodes,
            accelerator=body.accelerator,
            memory_bytes=body.memory_bytes,
            priority=body.priority,
            max_replicas=body.max_replicas,
            target_requests=body.target_requests,
            target_cache=body.target_cache,
            target_gpu=body.target_gpu,
            target_wait_seconds=body.target_wait_seconds,
            schedule=window_messages(body.schedule),
            idle_seconds=body.idle_seconds,
            sleep_seconds=body.sleep_seconds,
            clusters=body.clusters,
            dedicated=body.dedicated,
            training=body.training,
            follow=body.follow,
        )
        for cluster_id in body.clusters:
            # Refuses one that is not there, or not for the project.
            await clusters.GetCluster(clusters_pb2.GetClusterRequest(cluster_id=cluster_id))
        return _render(await inference.PutServing(request))

    @router.get("/{model:path}")
    async def retrieve_serving(model: str) -> Json:
        """Returns how a model is served."""
        return _render(await inference.GetServing(pb.GetServingRequest(model=model)))

    @router.delete("/{model:path}")
    async def delete_serving(model: str) -> Json:
        """Ends a model's engines; a request starts one again."""
        await inference.DeleteServing(pb.DeleteServingRequest(model=model))
        return {"id": model, "object": "serving", "deleted": True}

    return router
