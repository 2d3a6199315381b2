"""Bodies of Tinker's datums, in requests that train engines."""

from itertools import chain
from typing import Annotated, Literal

from pydantic import Field

from windlass.api.inference.v1 import inference_pb2 as pb
from windlass.gateway.parameters import Body

_INT32 = 2**31 - 1
_LONGEST = 2**20
_FLOAT32 = 3.4028234663852886e38
TokenId = Annotated[int, Field(ge=0, le=_INT32)]
Shape = Annotated[
    list[Annotated[int, Field(ge=1, le=_INT32)]],
    Field(min_length=1, max_length=2, description="Without one it is a row."),
]


class TrainingChunk(Body):
    """Token ids, which are a part of a sequence."""

    type: Literal["encoded_text"] = "encoded_text"
    tokens: Annotated[list[TokenId], Field(max_length=_LONGEST)]


class TrainingInput(Body):
    """A sequence, in parts."""

    chunks: Annotated[list[TrainingChunk], Field(min_length=1, max_length=10_000)]


class TrainingIds(Body):
    """Token ids as a tensor."""

    dtype: Literal["int64"]
    data: Annotated[list[TokenId], Field(max_length=_LONGEST)]
    shape: Shape | None = None


class TrainingNumbers(Body):
    """Numbers as a tensor."""

    dtype: Literal["float32"]
    data: Annotated[
        list[Annotated[float, Field(ge=-_FLOAT32, le=_FLOAT32, strict=False)]],
        Field(max_length=_LONGEST),
    ]
    shape: Shape | None = None


class TrainingDatum(Body):
    """A sequence; position i of each input is about what follows its i-th token."""

    model_input: TrainingInput
    loss_fn_inputs: Annotated[
        dict[str, Annotated[TrainingIds | TrainingNumbers, Field(discriminator="dtype")]],
        Field(max_length=10, description="`target_tokens`, and what the loss takes beside them."),
    ]

    def to_message(self) -> pb.TrainingDatum:
        """The datum of the request to the service."""
        tokens = chain.from_iterable(one.tokens for one in self.model_input.chunks)
        inputs = {name: _tensor(one) for name, one in self.loss_fn_inputs.items()}
        return pb.TrainingDatum(tokens=tokens, loss_fn_inputs=inputs)


def _tensor(given: TrainingIds | TrainingNumbers) -> pb.TrainingTensor:
    if isinstance(given, TrainingIds):
        return pb.TrainingTensor(ints=given.data, shape=given.shape)
    return pb.TrainingTensor(floats=given.data, shape=given.shape)
