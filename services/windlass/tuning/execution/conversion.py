"""Bodies of operations as the trainer takes them, and outcomes as results; pure."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from struct import pack, unpack

from windlass.api.tinker.v1 import tinker_pb2 as wire
from windlass.api.tuning.v1 import tuning_pb2 as pb
from windlass.core.errors import InvalidArgument
from windlass.tuning.domain import MAX_SAMPLED_TOKENS, MAX_STOPS, MAX_TOPK
from windlass.tuning_api.trainers.records import (
    MAX_DATUMS,
    BatchLosses,
    Datum,
    DType,
    ForwardBackward,
    OperationFailed,
    OptimStep,
    Outcome,
    SampleRequest,
    Samples,
    Stepped,
    Tensor,
    TopK,
    TrainableModel,
)

MAX_DIMENSIONS = 4
_DTYPES = {
    wire.DTYPE_FLOAT32: DType.FLOAT32,
    wire.DTYPE_INT64: DType.INT64,
    wire.DTYPE_INT32: DType.INT32,
    wire.DTYPE_BFLOAT16: DType.BFLOAT16,
}
_NUMBERS = {name: number for number, name in _DTYPES.items()}
_SIZES = {DType.FLOAT32: 4, DType.INT64: 8, DType.INT32: 4, DType.BFLOAT16: 2}
_TOKEN_BYTES = 4
_SETTINGS = frozenset({
    "learning_rate", "beta1", "beta2", "eps", "weight_decay", "grad_clip_norm", "momentum",
})  # fmt: skip


def is_computed(body: pb.OperationBody) -> bool:
    """Returns True for what a trainer computes."""
    return body.WhichOneof("body") in ("forward_backward", "optim_step")


def converted(
    body: pb.OperationBody, model: TrainableModel, operation_id: str = ""
) -> ForwardBackward | OptimStep:
    """A computation as the trainer takes it; raises InvalidArgument."""
    found: ForwardBackward | OptimStep
    if body.WhichOneof("body") == "forward_backward":
        found = forward_backward(body.forward_backward, model)
    else:
        found = optim_step(body.optim_step)
    return replace(found, operation_id=operation_id)


def forward_backward(
    message: wire.ForwardBackwardRequest, model: TrainableModel
) -> ForwardBackward:
    """A loss over sequences; raises InvalidArgument."""
    if not 1 <= len(message.data) <= MAX_DATUMS:
        raise InvalidArgument(
            f"data must have 1 to {MAX_DATUMS} items.", reason="too_many_examples", param="data"
        )
    config: dict[str, float | str] = dict(message.loss_fn_config)
    for name, value in message.loss_fn_config_v2.items():
        config[name] = value.number if value.WhichOneof("value") == "number" else value.text
    return ForwardBackward(
        data=[_datum(one, model, f"data[{at}]") for at, one in enumerate(message.data)],
        loss=message.loss_fn,
        config=config,
        is_forward_only=message.forward_only,
    )


def optim_step(message: pb.OptimStep) -> OptimStep:
    """A step; raises InvalidArgument for a setting that is not known, or no number."""
    for name, value in message.values.items():
        if name not in _SETTINGS:
            raise InvalidArgument(f"The optimizer has no setting {name[:64]!r}.", param=name[:64])
        if not math.isfinite(value):
            raise InvalidArgument(f"{name} must be finite.", param=name)
    return OptimStep(dict(message.values))


def sample_request(
    wish: pb.Sampling, model: TrainableModel, adapter: Path | None, project_id: str
) -> SampleRequest:
    """A request for continuations; raises InvalidArgument."""
    tokens = _tokens([wish.prompt], model, "prompt")
    length = tokens.shape[0]
    longest = model.max_context_length - length
    if not length:
        raise InvalidArgument("The prompt is empty.", param="prompt")
    max_tokens = wish.max_tokens or longest
    if not 1 <= max_tokens <= longest:
        raise InvalidArgument(
            f"Prompt and max_tokens exceed {model.max_context_length} tokens.", param="max_tokens"
        )
    if wish.count * max_tokens > MAX_SAMPLED_TOKENS:
        raise InvalidArgument("That is too many tokens for one request.", param="num_samples")
    if not (math.isfinite(wish.temperature) and wish.temperature >= 0):
        raise InvalidArgument("temperature must be 0 or more.", param="temperature")
    if not 0 < wish.top_p <= 1:
        raise InvalidArgument("top_p must be above 0 and at most 1.", param="top_p")
    if max(len(wish.stop_strings), len(wish.stop_tokens)) > MAX_STOPS:
        raise InvalidArgument(f"There are at most {MAX_STOPS} stops.", param="stop")
    for param in ("topk_prompt_logprobs", "topk_sample_logprobs"):
        if not 0 <= getattr(wish, param) <= MAX_TOPK:
            raise InvalidArgument(f"{param} must be between 0 and {MAX_TOPK}.", param=param)
    return SampleRequest(
        base_model=model.name,
        adapter=adapter,
        project_id=project_id,
        prompt=tokens,
        count=wish.count,
        max_tokens=max_tokens,
        temperature=wish.temperature,
        top_k=wish.top_k,
        top_p=wish.top_p,
        seed=wish.seed if wish.HasField("seed") else None,
        stop_strings=tuple(wish.stop_strings),
        stop_tokens=tuple(wish.stop_tokens),
        with_prompt_logprobs=wish.prompt_logprobs,
        topk_prompt_logprobs=wish.topk_prompt_logprobs,
        topk_sample_logprobs=wish.topk_sample_logprobs,
    )


def losses_result(losses: BatchLosses) -> pb.Result:
    """Outputs of a batch: each field's arrays, one after the other."""
    record = wire.ArrayRecord(type_tag="ArrayRecord", num_datums=len(losses.outputs))
    names = losses.outputs[0].keys() if losses.outputs else ()
    for name in names:
        tensors = [output[name] for output in losses.outputs]
        offsets = [0, *accumulate(len(tensor.data) for tensor in tensors)]
        record.fields[name].CopyFrom(
            wire.BatchedTensor(
                data=b"".join(tensor.data for tensor in tensors),
                offsets=pack(f"<{len(offsets)}q", *offsets),
                dtype=_NUMBERS[tensors[0].dtype],
                trailing_shape=tensors[0].shape[1:],
            )
        )
    output = wire.ForwardBackwardOutput(
        loss_fn_output_type="ArrayRecord", loss_fn_outputs=[record], metrics=_finite(losses.metrics)
    )
    return pb.Result(forward_backward=output)


def stepped_result(stepped: Stepped) -> pb.Result:
    """Metrics of a step."""
    return pb.Result(metrics=pb.Metrics(metrics=_finite(stepped.metrics)))


def computed_result(outcome: Outcome) -> pb.Result:
    """The result of a computation."""
    if isinstance(outcome, BatchLosses):
        return losses_result(outcome)
    if isinstance(outcome, Stepped):
        return stepped_result(outcome)
    if isinstance(outcome, OperationFailed):
        return failed_result(outcome)
    raise AssertionError(f"A trainer answered {outcome!r} to a computation")


def digest_of(result: pb.Result) -> bytes:
    """SHA-256 of a result, equal for equal ones."""
    return hashlib.sha256(result.SerializeToString(deterministic=True)).digest()


def failed_result(failed: OperationFailed) -> pb.Result:
    """A failure that the client reads."""
    return failed_with(failed.message, failed.reason, failed.category.value)


def failed_with(message: str, reason: str, category: str = "server") -> pb.Result:
    """A failure by its words."""
    return pb.Result(failure=pb.OperationFailure(message=message, reason=reason, category=category))


def samples_result(samples: Samples) -> pb.Result:
    """Continuations of a prompt."""
    response = wire.SampleResponse(prompt_logprobs=samples.prompt_logprobs)
    for sequence in samples.sequences:
        response.sequences.add(
            stop_reason=(
                wire.STOP_REASON_STOP if sequence.was_stopped else wire.STOP_REASON_LENGTH
            ),
            tokens=sequence.tokens,
            logprobs=sequence.logprobs,
            topk_logprobs=_topk(sequence.topk),
        )
    if (topk := _topk(samples.topk_prompt_logprobs)) is not None:
        response.topk_prompt_logprobs.CopyFrom(topk)
    return pb.Result(sample=response)


def _topk(topk: TopK | None) -> wire.TopKLogprobs | None:
    if topk is None:
        return None
    return wire.TopKLogprobs(
        token_ids=topk.token_ids, logprobs=topk.logprobs, k=topk.k, length=topk.length
    )


def _finite(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if math.isfinite(value)}


def _datum(message: wire.Datum, model: TrainableModel, param: str) -> Datum:
    for chunk in message.model_input:
        if chunk.WhichOneof("chunk") != "encoded_text":
            raise InvalidArgument("The model takes tokens alone.", param=f"{param}.model_input")
    texts = [chunk.encoded_text.tokens for chunk in message.model_input]
    tokens = _tokens(texts, model, f"{param}.model_input")
    if not 1 <= tokens.shape[0] <= model.max_context_length:
        raise InvalidArgument(
            f"A sequence must have 1 to {model.max_context_length} tokens.",
            param=f"{param}.model_input",
        )
    inputs = {name: _tensor(one, f"{param}.{name}") for name, one in message.loss_fn_inputs.items()}
    return Datum(tokens, inputs)


def _tokens(texts: Sequence[bytes], model: TrainableModel, param: str) -> Tensor:
    data = b"".join(texts)
    if len(data) % _TOKEN_BYTES:
        raise InvalidArgument("Tokens must be of four bytes each.", param=param)
    count = len(data) // _TOKEN_BYTES
    if count > model.max_context_length:
        raise InvalidArgument(
            f"A sequence must have at most {model.max_context_length} tokens.", param=param
        )
    values = unpack(f"<{count}i", data)
    if values and not 0 <= min(values) <= max(values) < model.vocabulary_size:
        raise InvalidArgument(
            f"Tokens must be between 0 and {model.vocabulary_size - 1}.", param=param
        )
    return Tensor(DType.INT32, (count,), data)


def _tensor(message: wire.Tensor, param: str) -> Tensor:
    dtype = _DTYPES.get(message.dtype)
    if dtype is None or message.WhichOneof("data") != "dense":
        raise InvalidArgument("A tensor must be dense, of a known type.", param=param)
    shape = tuple(message.shape) or (len(message.dense) // _SIZES[dtype],)
    if len(shape) > MAX_DIMENSIONS or min(shape) < 0:
        raise InvalidArgument("The shape of a tensor is not valid.", param=param)
    if math.prod(shape) * _SIZES[dtype] != len(message.dense):
        raise InvalidArgument("A tensor's bytes are not as many as its shape says.", param=param)
    return Tensor(dtype, shape, message.dense)
