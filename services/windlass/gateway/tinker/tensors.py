"""Arrays between JSON and the SDK's protobuf, for clients that speak JSON alone."""

import math
from collections.abc import Iterator, Sequence
from struct import error as struct_error
from struct import pack, unpack
from typing import Any

from windlass.api.tinker.v1 import tinker_pb2 as wire
from windlass.gateway.tinker.bodies import ChunkBody, LossInputBody, TensorBody
from windlass.gateway.tinker.errors import TinkerError

_FORMATS = {
    wire.DTYPE_FLOAT32: ("f", 4, "float32"),
    wire.DTYPE_INT64: ("q", 8, "int64"),
    wire.DTYPE_INT32: ("i", 4, "int64"),
}
_NUMBERS = {"float32": wire.DTYPE_FLOAT32, "int64": wire.DTYPE_INT64}


def encoded(kind: str, values: Sequence[float]) -> bytes:
    """Numbers as little-endian bytes; raises TinkerError 400."""
    try:
        numbers = values if kind == "f" else [_whole(value) for value in values]
        return pack(f"<{len(values)}{kind}", *numbers)
    except (struct_error, OverflowError, ValueError) as failure:
        raise TinkerError(400, "A number is out of range.", code="invalid_value") from failure


def tokens(chunks: Sequence[ChunkBody]) -> bytes:
    """The tokens of a prompt; raises TinkerError 400 for a part that is none."""
    return b"".join(_chunk(one) for one in chunks)


def loss_message(
    model_id: str, seq_id: int, given: LossInputBody, *, forward_only: bool
) -> wire.ForwardBackwardRequest:
    """A computation that came as JSON."""
    message = wire.ForwardBackwardRequest(
        model_id=model_id, seq_id=seq_id, loss_fn=given.loss_fn, forward_only=forward_only
    )
    for name, value in (given.loss_fn_config or {}).items():
        if isinstance(value, str):
            message.loss_fn_config_v2[name].text = value
        else:
            message.loss_fn_config[name] = value
    for one in given.data:
        datum = message.data.add()
        for chunk in one.model_input.chunks:
            datum.model_input.add().encoded_text.tokens = _chunk(chunk)
        for name, tensor in one.loss_fn_inputs.items():
            datum.loss_fn_inputs[name].CopyFrom(_tensor(tensor))
    return message


def losses_json(output: wire.ForwardBackwardOutput) -> dict[str, Any]:
    """Outputs of a computation, one object for each sequence."""
    rows = [row for record in output.loss_fn_outputs for row in _rows(record)]
    return {
        "loss_fn_output_type": output.loss_fn_output_type,
        "loss_fn_outputs": rows,
        "metrics": dict(output.metrics),
    }


def sample_json(response: wire.SampleResponse) -> dict[str, Any]:
    """Continuations of a prompt; where there is no log-probability, null."""
    found: dict[str, Any] = {
        "type": "sample",
        "sequences": [_sequence(one) for one in response.sequences],
    }
    if response.prompt_logprobs:
        found["prompt_logprobs"] = [
            None if math.isnan(value) else value for value in _floats(response.prompt_logprobs)
        ]
    if response.HasField("topk_prompt_logprobs"):
        found["topk_prompt_logprobs"] = list(_topk(response.topk_prompt_logprobs))
    return found


def _whole(value: float) -> int:
    number = int(value)
    if number != value:
        raise ValueError(value)
    return number


def _chunk(chunk: ChunkBody) -> bytes:
    if chunk.type != "encoded_text" or chunk.tokens is None:
        raise TinkerError(400, "A prompt must be tokens.", code="invalid_value", param="prompt")
    return encoded("i", chunk.tokens)


def _tensor(given: TensorBody) -> wire.Tensor:
    if given.sparse_crow_indices is not None or given.sparse_col_indices is not None:
        raise TinkerError(400, "A tensor must be dense.", code="invalid_value")
    number = _NUMBERS[given.dtype]
    shape = given.shape if given.shape is not None else [len(given.data)]
    if any(not 0 <= one < 2**31 for one in shape):
        raise TinkerError(400, "A shape is out of range.", code="invalid_value")
    return wire.Tensor(dense=encoded(_FORMATS[number][0], given.data), dtype=number, shape=shape)


def _rows(record: wire.ArrayRecord) -> Iterator[dict[str, Any]]:
    for at in range(record.num_datums):
        yield {name: _item(field, at) for name, field in record.fields.items()}


def _item(field: wire.BatchedTensor, at: int) -> dict[str, Any]:
    kind, size, name = _FORMATS[field.dtype]
    begin, end = unpack("<2q", field.offsets[at * 8 : at * 8 + 16])
    count = (end - begin) // size
    rest = math.prod(field.trailing_shape)
    shape = [count // rest if rest else 0, *field.trailing_shape]
    data = list(unpack(f"<{count}{kind}", field.data[begin:end]))
    return {"data": data, "dtype": name, "shape": shape}


def _sequence(one: wire.SampledSequence) -> dict[str, Any]:
    reason = "stop" if one.stop_reason == wire.STOP_REASON_STOP else "length"
    count = len(one.tokens) // 4
    found: dict[str, Any] = {
        "stop_reason": reason,
        "tokens": list(unpack(f"<{count}i", one.tokens)),
        "logprobs": _floats(one.logprobs),
    }
    if one.HasField("topk_logprobs"):
        found["topk_logprobs"] = list(_topk(one.topk_logprobs))
    return found


def _floats(data: bytes) -> list[float]:
    return list(unpack(f"<{len(data) // 4}f", data))


def _topk(topk: wire.TopKLogprobs) -> Iterator[list[tuple[int, float]]]:
    ids = unpack(f"<{topk.k * topk.length}i", topk.token_ids)
    logprobs = _floats(topk.logprobs)
    for start in range(0, topk.k * topk.length, topk.k):
        yield list(zip(ids[start : start + topk.k], logprobs[start : start + topk.k], strict=True))
