"""Samplers, what they are asked, and results of every kind."""

from typing import Any

from windlass.api.tuning.v1 import tuning_pb2 as pb
from windlass.api.tuning.v1 import tuning_pb2_grpc as rpc
from windlass.gateway.tinker.bodies import (
    CreateSamplerBody,
    RequestNameBody,
    RetrieveBody,
    RetrieveManyBody,
    SampleBody,
    SamplerNameBody,
)
from windlass.gateway.tinker.errors import TinkerError
from windlass.gateway.tinker.requests import TinkerRequest
from windlass.gateway.tinker.routing import Answer, Binary, TinkerRoute, route
from windlass.gateway.tinker.tensors import losses_json, sample_json, tokens

# Below the 30 s that a service is asked for, and the 45 s that a client waits.
WAIT_MS = 20_000
_INT32 = 2**31


class SamplingRoutes:
    """Routes of samplers and results."""

    def __init__(self, tuning: rpc.TuningServiceAsyncStub):
        self._tuning = tuning

    def routes(self) -> tuple[TinkerRoute, ...]:
        """Every route."""
        return (
            route("POST", "create_sampling_session", self._create),
            route("GET", "samplers/{sampler_id}", self._get),
            route("POST", "asample", self._sample),
            route("POST", "retrieve_future", self._retrieve),
            route("POST", "retrieve_futures", self._retrieve_many),
            route("POST", "cancel_future", self._cancel),
            route("POST", "join_sampling_session", self._join),
        )

    async def _create(self, request: TinkerRequest) -> Answer:
        asked = request.decoded(CreateSamplerBody)
        if not 0 <= asked.sampling_session_seq_id < _INT32:
            raise TinkerError(400, "sampling_session_seq_id is out of range.", code="invalid_value")
        made = await self._tuning.CreateSampler(
            pb.CreateSamplerRequest(
                session_id=asked.session_id,
                number=asked.sampling_session_seq_id,
                base_model=asked.base_model or "",
                path=asked.model_path or "",
            )
        )
        return {"type": "create_sampling_session", "sampling_session_id": made.id}

    async def _get(self, request: TinkerRequest) -> Answer:
        wanted = pb.GetSamplerRequest(sampler_id=request.names["sampler_id"])
        found = await self._tuning.GetSampler(wanted)
        return {
            "sampler_id": found.id,
            "base_model": found.base_model,
            "model_path": found.path or None,
        }

    async def _sample(self, request: TinkerRequest) -> Answer:
        asked = request.decoded(SampleBody)
        message = pb.SampleRequest(
            sampler_id=asked.sampling_session_id or "", sampling=_sampling(asked)
        )
        if asked.seq_id is not None:
            message.seq_id = _cursor(asked.seq_id, "seq_id")
        made = await self._tuning.Sample(message)
        return {"request_id": made.id, "sample_sequence_ids": list(made.sequence_ids)}

    async def _retrieve(self, request: TinkerRequest) -> Answer:
        asked = request.decoded(RetrieveBody)
        found = await self._tuning.GetResult(
            pb.GetResultRequest(operation_id=asked.request_id, wait_ms=WAIT_MS)
        )
        if not found.HasField("result"):
            again = {
                "type": "try_again",
                "request_id": asked.request_id,
                "queue_state": "paused_capacity" if found.waits_for else "active",
            }
            why = {"queue_state_reason": found.waits_for} if found.waits_for else {}
            return again | why
        return result_answer(found.result, in_binary=request.takes_protobuf)

    async def _retrieve_many(self, request: TinkerRequest) -> Answer:
        asked = request.decoded(RetrieveManyBody)
        seconds = longest = WAIT_MS / 1000
        if asked.timeout is not None:
            seconds = min(max(asked.timeout, 0), longest)
        found = await self._tuning.PollEnded(
            pb.PollEndedRequest(
                sampler_id=asked.target.sampling_session_id,
                client_number=_cursor(asked.target.cloned_sampler_id, "cloned_sampler_id"),
                cursor=_cursor(asked.prev_cursor, "prev_cursor"),
                wait_seconds=seconds,
            )
        )
        ended = [{"state": "finished", "request_id": one} for one in found.operation_ids]
        return {"completions": ended, "cursor": found.cursor}

    async def _cancel(self, request: TinkerRequest) -> Answer:
        asked = request.decoded(RequestNameBody)
        await self._tuning.CancelOperation(pb.CancelOperationRequest(operation_id=asked.request_id))
        return None

    async def _join(self, request: TinkerRequest) -> Answer:
        asked = request.decoded(SamplerNameBody)
        joined = await self._tuning.JoinSampler(
            pb.JoinSamplerRequest(sampler_id=asked.sampling_session_id)
        )
        return {"type": "join_sampling_session", "client_counter": joined.client_number}


def result_answer(result: pb.Result, *, in_binary: bool) -> Answer:
    """A result as the SDK reads it; failures are answers too."""
    kind = result.WhichOneof("result")
    if kind == "failure":
        return {"error": result.failure.message, "category": result.failure.category}
    if kind == "forward_backward":
        output = result.forward_backward
        return Binary(output.SerializeToString()) if in_binary else losses_json(output)
    if kind == "sample":
        sample = result.sample
        return Binary(sample.SerializeToString()) if in_binary else sample_json(sample)
    if kind == "metrics":
        return {"type": "optim_step", "metrics": dict(result.metrics.metrics)}
    if kind == "opened":
        return {"type": "create_model", "model_id": result.opened.run_id}
    if kind == "loaded":
        loaded = result.loaded
        return {"type": "load_weights", "path": loaded.path, "model_id": loaded.run_id}
    if kind == "loss":
        return {"type": "create_custom_loss", "loss_id": result.loss.loss_id}
    return _saved(result.saved)


def _saved(saved: pb.SavedCheckpoint) -> dict[str, Any]:
    if saved.external:
        return {"type": "save_weights_external", "path": saved.path, "size_bytes": saved.bytes}
    if not saved.for_sampler:
        return {"type": "save_weights", "path": saved.path}
    return {
        "type": "save_weights_for_sampler",
        "path": saved.path or None,
        "sampling_session_id": saved.sampler_id or None,
    }


def _sampling(asked: SampleBody) -> pb.Sampling:
    params = asked.sampling_params
    message = pb.Sampling(
        prompt=tokens(asked.prompt.chunks),
        count=_int32(asked.num_samples, "num_samples"),
        max_tokens=_int32(params.max_tokens or 0, "max_tokens"),
        temperature=params.temperature,
        top_k=_int32(params.top_k, "top_k"),
        top_p=params.top_p,
        prompt_logprobs=bool(asked.prompt_logprobs),
        topk_prompt_logprobs=_int32(asked.topk_prompt_logprobs or 0, "topk_prompt_logprobs"),
        topk_sample_logprobs=_int32(asked.topk_sample_logprobs or 0, "topk_sample_logprobs"),
        base_model=asked.base_model or "",
        path=asked.model_path or "",
    )
    if params.seed is not None:
        if not -(2**63) <= params.seed < 2**63:
            raise TinkerError(400, "seed is out of range.", code="invalid_value", param="seed")
        message.seed = params.seed
    stops = [params.stop] if isinstance(params.stop, str) else params.stop or []
    for stop in stops:
        if isinstance(stop, str):
            message.stop_strings.append(stop)
        else:
            message.stop_tokens.append(_int32(stop, "stop"))
    return message


def _cursor(number: int, name: str) -> int:
    if not 0 <= number < 2**53:
        raise TinkerError(400, f"{name} is out of range.", code="invalid_value", param=name)
    return number


def _int32(number: int, name: str) -> int:
    if not -_INT32 <= number < _INT32:
        raise TinkerError(400, f"{name} is out of range.", code="invalid_value", param=name)
    return number
