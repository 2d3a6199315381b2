"""Requests that describe serving stacks, and adopt their models."""

from windlass.api.clusters.v1 import clusters_pb2
from windlass.api.inference.v1 import inference_pb2 as pb
from windlass.api.models.v1 import models_pb2
from windlass.api.models.v1.models_pb2_grpc import ModelsInternalServiceAsyncStub
from windlass.core.db.paging import cut, fitting, page_size
from windlass.core.db.wake import Wake
from windlass.core.errors import FailedPrecondition, InvalidArgument
from windlass.core.keyring import Envelope
from windlass.core.rpc.auth import current
from windlass.inference.stacks import stack as rules
from windlass.inference.stacks.stack import Stack
from windlass.inference.stacks.store import StackStore
from windlass.inference_api.routes import RERANK, SCORE


class StackRequests:
    """The part of InferenceService that is about stacks."""

    def __init__(
        self,
        stacks: StackStore,
        models: ModelsInternalServiceAsyncStub,
        envelope: Envelope,
        wake: Wake,
    ):
        self._stacks = stacks
        self._models = models
        self._envelope = envelope
        self._wake = wake

    async def put(self, request: pb.PutStackRequest) -> pb.Stack:
        """Describes a stack; raises InvalidArgument that names the field."""
        rules.check_bounds(request.max_concurrency, request.context_length)
        if not request.cluster_id:
            raise InvalidArgument("cluster_id is required.", param="cluster_id")
        name = rules.check_name(request.name)
        url = rules.check_url(request.url)
        dialect = rules.check_dialect(request.dialect)
        rules.check_score(request.score, dialect)
        key = rules.check_key(request.key)
        sealed = self._envelope.seal(key, context=request.cluster_id) if key else b""
        keeps_key = not request.HasField("key")
        stored = await self._stacks.put(
            Stack(
                name=name,
                cluster_id=request.cluster_id,
                url=url,
                dialect=dialect,
                ca=rules.check_ca(request.ca),
                sealed_key=sealed,
                max_concurrency=request.max_concurrency,
                context_length=request.context_length,
                embeddings=request.embeddings,
                rerank=request.rerank,
                score=request.score,
            ),
            keeps_key=keeps_key,
        )
        self._wake.touch("inference")
        return _message(stored)

    async def list(self, request: pb.ListStacksRequest) -> pb.ListStacksResponse:
        """Stacks by name."""
        limit = page_size(request.limit)
        found = await self._stacks.list(after=request.after, limit=limit + 1)
        shown, more = cut(found, limit)
        page, more = fitting(map(_message, shown), more)
        return pb.ListStacksResponse(stacks=page, has_more=more)

    async def delete(self, request: pb.DeleteStackRequest) -> pb.DeleteStackResponse:
        """Forgets a stack; raises FailedPrecondition while models are adopted from it."""
        stack = await self._stacks.get(request.name)
        found = await self._models.FindAdopted(models_pb2.FindAdoptedRequest(stack=stack.name))
        if found.count:
            named = ", ".join(found.ids) + (", …" if found.count > len(found.ids) else "")
            raise FailedPrecondition(
                f"{found.count} models are adopted from {stack.name}: {named}. Delete them first.",
                reason="stack_in_use",
                param="name",
            )
        await self._stacks.delete(stack.name)
        return pb.DeleteStackResponse()

    async def adopt(self, request: pb.AdoptModelRequest) -> models_pb2.Model:
        """Gives a model of a stack a name; raises NotFound for no stack, AlreadyExists."""
        current().require_model(request.id, "id")
        principal, stack = current(), await self._stacks.get(request.stack)
        return await self._models.AdoptModel(
            models_pb2.AdoptModelRequest(
                id=request.id,
                project_id="" if request.is_global else principal.require_project(),
                organization_id=principal.organization_id,
                adopted_from=models_pb2.AdoptedFrom(
                    stack=stack.name, model=rules.check_model(request.model or request.id)
                ),
            )
        )


def to_workload(stack: Stack, model: str) -> clusters_pb2.ServingStack:
    """A model of a stack as an agent is told of it."""
    return clusters_pb2.ServingStack(
        url=stack.url,
        model=model,
        dialect=stack.dialect,
        ca=stack.ca,
        sealed_key=stack.sealed_key,
        capabilities=clusters_pb2.EngineCapabilities(
            max_concurrency=stack.max_concurrency,
            context_length=stack.context_length,
            embeddings=stack.embeddings,
            routes=[path for path, has in ((RERANK, stack.rerank), (SCORE, stack.score)) if has],
            cache_salt=stack.dialect == rules.VLLM,
        ),
    )


def _message(stack: Stack) -> pb.Stack:
    return pb.Stack(
        name=stack.name,
        cluster_id=stack.cluster_id,
        url=stack.url,
        dialect=stack.dialect,
        ca=stack.ca,
        has_key=bool(stack.sealed_key),
        max_concurrency=stack.max_concurrency,
        context_length=stack.context_length,
        embeddings=stack.embeddings,
        rerank=stack.rerank,
        score=stack.score,
        created_at=int(stack.created_at),
        updated_at=int(stack.updated_at),
    )
