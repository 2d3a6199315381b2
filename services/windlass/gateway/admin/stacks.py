"""/v1/stacks: serving stacks that others run, and the adoption of their models."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr

from windlass.api.clusters.v1 import clusters_pb2, clusters_pb2_grpc
from windlass.api.inference.v1 import inference_pb2 as pb
from windlass.api.inference.v1 import inference_pb2_grpc as rpc
from windlass.bounds import (
    MAX_STACK_CONCURRENCY,
    MAX_STACK_CONTEXT,
    STACK_CA_BYTES,
    STACK_KEY_LENGTH,
    STACK_MODEL_LENGTH,
    STACK_URL_LENGTH,
)
from windlass.core.app import App
from windlass.gateway.openai.rendering import Json, page, render_model
from windlass.gateway.parameters import After, Body, Limit, encodable
from windlass.gateway.plain import plain
from windlass.gateway.resource_router import ResourceRouter
from windlass.modelfiles.naming import ID_LENGTH


class PutStack(Body):
    """A serving stack, by the way to it from a cluster."""

    cluster_id: Annotated[str, Field(description="The cluster whose agent reaches it.")]
    url: Annotated[
        str,
        Field(
            min_length=1,
            max_length=STACK_URL_LENGTH,
            description="http://HOST:PORT or https://HOST, with a path where the stack has one.",
        ),
    ]
    dialect: Annotated[
        Literal["openai", "vllm"],
        Field(description="`vllm` for what has vLLM's fields, and usage in every chunk."),
    ] = "openai"
    ca: Annotated[
        str, Field(max_length=STACK_CA_BYTES, description="PEM of what certifies the stack.")
    ] = ""
    key: Annotated[
        Annotated[SecretStr, AfterValidator(encodable)] | None,
        Field(
            max_length=STACK_KEY_LENGTH,
            description="Key of the stack; left out: the one that is there. No answer holds it.",
        ),
    ] = None
    max_concurrency: Annotated[
        int,
        Field(
            ge=0,
            le=MAX_STACK_CONCURRENCY,
            description="Requests for each of its models at once; 0: any number.",
        ),
    ] = 0
    context_length: Annotated[
        int, Field(ge=0, le=MAX_STACK_CONTEXT, description="Tokens; 0: what the stack says.")
    ] = 0
    embeddings: Annotated[bool, Field(description="Whether it has /v1/embeddings.")] = False
    rerank: Annotated[
        bool, Field(description="Whether it has /v1/rerank, as vLLM, KServe and Jina do.")
    ] = False
    score: Annotated[
        bool, Field(description="Whether it has /v1/score, as another Windlass does.")
    ] = False


class AdoptModel(Body):
    """A model of a stack, and the name that it gets."""

    id: Annotated[str, Field(min_length=1, max_length=ID_LENGTH)]
    model: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=STACK_MODEL_LENGTH,
            description="The stack's name of the model; left out: the id.",
        ),
    ] = None
    for_everyone: Annotated[bool, Field(alias="global")] = False


def _render(stack: pb.Stack) -> Json:
    # OpenAI's page cursors are ids.
    return {"id": stack.name, **plain(stack, "stack")}


def stacks_router(app: App) -> ResourceRouter:
    """Serving stacks."""
    router = ResourceRouter(prefix="/stacks", tags=["models"])
    inference = app.clients.stub(rpc.InferenceServiceStub)
    clusters = app.clients.stub(clusters_pb2_grpc.ClustersServiceStub)

    @router.get("")
    async def list_stacks(after: After = "", limit: Limit = 0) -> Json:
        """Lists the installation's serving stacks, by name (platform administrators)."""
        answer = await inference.ListStacks(pb.ListStacksRequest(after=after, limit=limit))
        return page([_render(stack) for stack in answer.stacks], answer.has_more)

    @router.put("/{name}")
    async def put_stack(name: str, body: PutStack) -> Json:
        """Describes a serving stack that somebody else runs (platform administrators)."""
        # Refuses a cluster that is not there.
        await clusters.GetCluster(clusters_pb2.GetClusterRequest(cluster_id=body.cluster_id))
        request = pb.PutStackRequest(
            name=name,
            cluster_id=body.cluster_id,
            url=body.url,
            dialect=body.dialect,
            ca=body.ca,
            key=None if body.key is None else body.key.get_secret_value(),
            max_concurrency=body.max_concurrency,
            context_length=body.context_length,
            embeddings=body.embeddings,
            rerank=body.rerank,
            score=body.score,
        )
        return _render(await inference.PutStack(request))

    @router.delete("/{name}")
    async def delete_stack(name: str) -> Json:
        """Forgets a serving stack that no model is adopted from (platform administrators)."""
        await inference.DeleteStack(pb.DeleteStackRequest(name=name))
        return {"id": name, "object": "stack", "deleted": True}

    @router.post("/{name}/models")
    async def adopt_model(name: str, body: AdoptModel) -> Json:
        """Gives a model of a stack a name in the project (platform administrators)."""
        request = pb.AdoptModelRequest(
            stack=name, id=body.id, model=body.model or "", is_global=body.for_everyone
        )
        return render_model(await inference.AdoptModel(request))

    return router
