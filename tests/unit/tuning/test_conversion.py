"""Bodies of operations as trainers take them, and what they answer as results."""

import struct
from typing import Any

import pytest

from windlass.api.tinker.v1 import tinker_pb2 as wire
from windlass.api.tuning.v1 import tuning_pb2 as pb
from windlass.core.errors import InvalidArgument
from windlass.tuning.execution.conversion import (
    forward_backward,
    losses_result,
    optim_step,
    sample_request,
    stepped_result,
)
from windlass.tuning_api.trainers.records import (
    BatchLosses,
    DType,
    Stepped,
    Tensor,
    TrainableModel,
)

MODEL = TrainableModel("toy", max_context_length=8, max_rank=8, vocabulary_size=10)


def tokens(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}i", *values)


def request(*texts: bytes, **inputs: wire.Tensor) -> wire.ForwardBackwardRequest:
    chunks = [wire.Chunk(encoded_text=wire.EncodedText(tokens=text)) for text in texts]
    datum = wire.Datum(model_input=chunks, loss_fn_inputs=inputs)
    return wire.ForwardBackwardRequest(data=[datum], loss_fn="ppo", forward_only=True)


def test_chunks_are_one_sequence_and_text_overrides_numbers() -> None:
    message = request(tokens(1, 2), tokens(3))
    message.loss_fn_config["clip"] = 0.5
    message.loss_fn_config["mode"] = 1.0
    message.loss_fn_config_v2["mode"].text = "soft"
    found = forward_backward(message, MODEL)
    assert found.data[0].tokens == Tensor(DType.INT32, (3,), tokens(1, 2, 3))
    assert (found.is_forward_only, found.config) == (True, {"clip": 0.5, "mode": "soft"})


@pytest.mark.parametrize(
    "message",
    [
        wire.ForwardBackwardRequest(),
        request(),
        request(b"123"),
        request(tokens(10)),
        request(tokens(-1)),
        request(tokens(*[1] * 9)),
        request(tokens(1), a=wire.Tensor(dense=bytes(4))),
        request(tokens(1), a=wire.Tensor(dense=bytes(4), dtype=wire.DTYPE_INT64, shape=[1])),
        request(tokens(1), a=wire.Tensor(dtype=wire.DTYPE_FLOAT32, shape=[-1])),
        request(tokens(1), a=wire.Tensor(dtype=wire.DTYPE_FLOAT32, shape=[0] * 5)),
        request(tokens(1), a=wire.Tensor(sparse_csr=wire.SparseCsr(), dtype=wire.DTYPE_FLOAT32)),
        wire.ForwardBackwardRequest(
            data=[wire.Datum(model_input=[wire.Chunk(image=wire.Image(data=b"x"))])]
        ),
    ],
)
def test_a_wrong_batch_is_refused(message: wire.ForwardBackwardRequest) -> None:
    with pytest.raises(InvalidArgument):
        forward_backward(message, MODEL)


@pytest.mark.parametrize("values", [{"lr": 1.0}, {"beta1": float("nan")}, {"eps": float("inf")}])
def test_a_wrong_step_is_refused(values: dict[str, float]) -> None:
    with pytest.raises(InvalidArgument):
        optim_step(pb.OptimStep(values=values))


def wish(**changes: Any) -> pb.Sampling:
    good: dict[str, Any] = {
        "prompt": tokens(1, 2), "count": 1, "temperature": 1.0, "top_p": 1.0,
    }  # fmt: skip
    return pb.Sampling(**good | changes)


def test_a_sample_without_a_length_fills_the_context() -> None:
    assert sample_request(wish(), MODEL, None, "p").max_tokens == 6


@pytest.mark.parametrize(
    "changes",
    [
        {"prompt": b""}, {"prompt": tokens(10)}, {"max_tokens": 7}, {"max_tokens": -1},
        {"temperature": -1.0}, {"temperature": float("nan")}, {"top_p": 0.0}, {"top_p": 1.5},
        {"stop_tokens": [1] * 65}, {"topk_prompt_logprobs": 101}, {"count": 10**6},
    ],
)  # fmt: skip
def test_a_wrong_sample_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument):
        sample_request(wish(**changes), MODEL, None, "p")


def test_arrays_of_a_batch_lie_one_after_the_other() -> None:
    outputs = [
        {"logprobs": Tensor(DType.FLOAT32, (length,), bytes(4 * length))} for length in (2, 0, 3)
    ]
    metrics = {"loss:sum": 1.5, "bad:mean": float("nan")}
    output = losses_result(BatchLosses(outputs, metrics)).forward_backward
    (record,) = output.loss_fn_outputs
    assert record.num_datums == 3
    assert struct.unpack("<4q", record.fields["logprobs"].offsets) == (0, 8, 8, 20)
    assert dict(output.metrics) == {"loss:sum": 1.5}
    stepped = stepped_result(Stepped({"norm:mean": float("inf")}))
    assert dict(stepped.metrics.metrics) == {}
