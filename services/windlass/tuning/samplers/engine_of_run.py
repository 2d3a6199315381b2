"""The engine of a run as its sampler: token ids go the way of all requests, by the gateway."""

import asyncio
from typing import Any

import grpc
import orjson

from windlass.api.gateway.v1 import gateway_pb2 as pb
from windlass.api.gateway.v1.gateway_pb2_grpc import GatewayInternalServiceAsyncStub
from windlass.core.backoff import Backoff
from windlass.core.errors import InvalidArgument
from windlass.tuning.samplers.completions import asked, sequences
from windlass.tuning.samplers.wire import parts
from windlass.tuning_api.trainers.port import TrainerLost
from windlass.tuning_api.trainers.records import (
    FailureCategory,
    OperationFailed,
    SampledSequence,
    SampleRequest,
    Samples,
)

SAMPLE_SECONDS = 1800.0
AT_ONCE = 16
# Continuations of one request to the engine.
CHOICES = 8
_BUSY = (429, 503)


class EngineOfRunSampler:
    """Continues prompts by the engines of projects' models, as these are when they are asked."""

    def __init__(self, gateway: GatewayInternalServiceAsyncStub):
        self._gateway = gateway
        self._places = asyncio.Semaphore(AT_ONCE)

    async def sample(
        self, organization_id: str, request: SampleRequest
    ) -> Samples | OperationFailed:
        """Continues a prompt; raises TrainerLost, InvalidArgument for what engines do not tell."""
        _require_told(request)
        bodies = [asked(request, *part) for part in parts(request, CHOICES)]
        work = [
            asyncio.create_task(self._continued(organization_id, request, one)) for one in bodies
        ]
        try:
            answers = await asyncio.gather(*work)
        finally:
            for task in work:
                task.cancel()
        found: list[SampledSequence] = []
        for answer in answers:
            if isinstance(answer, OperationFailed):
                return answer
            found += answer
        # Without chance all are one, which was asked for once.
        return Samples(found if request.temperature else found * request.count)

    async def _continued(
        self, organization_id: str, request: SampleRequest, body: dict[str, Any]
    ) -> list[SampledSequence] | OperationFailed:
        wish = pb.CompleteRequest(
            organization_id=organization_id,
            project_id=request.project_id,
            body=orjson.dumps(body),
        )
        async with self._places, asyncio.timeout(SAMPLE_SECONDS):
            backoff = Backoff()
            while True:
                try:
                    answer = await self._gateway.Complete(wish, timeout=SAMPLE_SECONDS)
                except grpc.aio.AioRpcError as error:
                    raise TrainerLost(f"the gateway does not answer: {error.details()}") from error
                if answer.status not in _BUSY:
                    break
                await backoff.pause()
        if answer.status != 200:
            user = 400 <= answer.status < 500
            side = FailureCategory.USER if user else FailureCategory.SERVER
            return OperationFailed(answer.message, "sampler_refused", side)
        try:
            return sequences(orjson.loads(answer.body), body["n"])
        except (KeyError, TypeError, ValueError) as error:
            raise TrainerLost(f"the engine answers {error!r}") from error


def _require_told(request: SampleRequest) -> None:
    for name in ("with_prompt_logprobs", "topk_prompt_logprobs", "topk_sample_logprobs"):
        if getattr(request, name):
            raise InvalidArgument(
                "The engine of a run tells the log-probabilities of what it samples, and no "
                "others: leave those of the prompt and of other tokens out.",
                reason="not_in_engine",
                param=name.removeprefix("with_"),
            )
