"""Records that cross the port of trainers: runs, operations and what they result in; pure.

Numbers travel as little-endian bytes with their type and shape, as they came and as they go.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

# Sequences of one operation.
MAX_DATUMS = 1024


class DType(StrEnum):
    """Types of elements of a tensor."""

    FLOAT32 = "float32"
    INT64 = "int64"
    INT32 = "int32"
    BFLOAT16 = "bfloat16"


@dataclass(frozen=True, slots=True)
class Tensor:
    """A dense array, row by row; `data` holds exactly as many bytes as `shape` and `dtype` say."""

    dtype: DType
    shape: tuple[int, ...]
    data: bytes


@dataclass(frozen=True, slots=True)
class PodResources:
    """Resources that a session asks for, for each of its pods; what is empty is the cluster's."""

    gpus: int = 0
    accelerator: str = ""
    memory_bytes: int = 0


NO_RESOURCES = PodResources()


@dataclass(frozen=True, slots=True)
class ClusterChoice:
    """A cluster that a session's processes are to be pods of; empty: none was named."""

    name: str = ""
    resources: PodResources = NO_RESOURCES


NO_CHOICE = ClusterChoice()


@dataclass(frozen=True, slots=True)
class Run:
    """One adapter on a base model, or all of a model, as its tenant asked for it."""

    id: str
    project_id: str
    base_model: str
    # 0: every parameter of the model.
    rank: int = 32
    seed: int | None = None
    train_attention: bool = True
    train_mlp: bool = True
    train_unembedding: bool = True
    # `adamw` or `dimuon`.
    optimizer: str = "adamw"
    # Alone in each pass, for the same bits as running alone.
    is_exclusive: bool = False
    # The share of its project.
    weight: float = 1.0
    # That train it together, where it has every parameter.
    processes: int = 1
    cluster: ClusterChoice = NO_CHOICE
    # Its model is a served one of its project, whose engine it trains in place.
    is_in_engine: bool = False


@dataclass(frozen=True, slots=True)
class Datum:
    """One sequence: the tokens of its input, int32, and what its loss needs by name."""

    tokens: Tensor
    loss_inputs: Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class ForwardBackward:
    """A loss over sequences; its gradient is added to the run's unless it is forward only."""

    data: Sequence[Datum]
    loss: str
    config: Mapping[str, float | str] = field(default_factory=dict)
    is_forward_only: bool = False
    # That the log has it by: whoever repeats it is asked for the same one.
    operation_id: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class OptimStep:
    """A step of the run's optimizer; its gradients are empty afterwards."""

    # Such as `learning_rate`, `beta1`, `beta2`, `eps`, `weight_decay`, `grad_clip_norm`.
    values: Mapping[str, float] = field(default_factory=dict)
    operation_id: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class SaveState:
    """Weights, optimizer, gradients not yet applied and generator, into an empty folder."""

    folder: Path


@dataclass(frozen=True, slots=True)
class LoadState:
    """Takes over what SaveState or SaveAdapter wrote; the optimizer too if asked."""

    folder: Path
    with_optimizer: bool = True


@dataclass(frozen=True, slots=True)
class SaveAdapter:
    """The weights for a sampler, in PEFT's format or as a model, into an empty folder."""

    folder: Path


Operation = ForwardBackward | OptimStep | SaveState | LoadState | SaveAdapter


class FailureCategory(StrEnum):
    """Side that has to do something about a failure."""

    USER = "user"
    SERVER = "server"


@dataclass(frozen=True, slots=True)
class BatchLosses:
    """The outputs of each datum by name, such as `logprobs`, and metrics `name:reduction`.

    No metric is NaN or infinite.
    """

    outputs: Sequence[Mapping[str, Tensor]]
    metrics: Mapping[str, float]
    # Of the device; what shares a pass shares its time, by tokens.
    device_seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class Stepped:
    """Metrics of a step."""

    metrics: Mapping[str, float]
    device_seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class FolderWritten:
    """The bytes that were written into the folder."""

    size: int


@dataclass(frozen=True, slots=True)
class StateLoaded:
    """The run goes on from the folder."""


@dataclass(frozen=True, slots=True)
class OperationFailed:
    """The operation had no effect on the run; those after it go on."""

    message: str
    # Stable, such as `loss_not_finite`.
    reason: str
    category: FailureCategory = FailureCategory.USER


Outcome = BatchLosses | Stepped | FolderWritten | StateLoaded | OperationFailed


@dataclass(frozen=True, slots=True)
class TrainableModel:
    """A model that runs can be made on."""

    name: str
    max_context_length: int
    max_rank: int
    vocabulary_size: int
    # Where a client finds the tokenizer: a name on the hub, or a path.
    tokenizer_id: str = ""
    architecture: str = ""
    # By the headers of its files; 0 where nobody looked.
    parameters: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """A wish for `count` continuations of a prompt."""

    base_model: str
    # What SaveAdapter wrote; None for the base model itself.
    adapter: Path | None
    # int32.
    prompt: Tensor
    count: int
    max_tokens: int
    temperature: float = 1.0
    top_k: int = -1
    top_p: float = 1.0
    seed: int | None = None
    stop_strings: Sequence[str] = ()
    stop_tokens: Sequence[int] = ()
    with_prompt_logprobs: bool = False
    topk_prompt_logprobs: int = 0
    topk_sample_logprobs: int = 0
    # Whose turn it takes.
    project_id: str = ""
    # Whose sampler continues it, where `adapter` is a model of its own.
    session_id: str = ""
    # Samplers that its session asked for.
    replicas: int = 1
    cluster: ClusterChoice = NO_CHOICE


@dataclass(frozen=True, slots=True)
class TopK:
    """The most likely tokens of each place: `length` rows of `k`, int32 and float32."""

    token_ids: bytes
    logprobs: bytes
    k: int
    length: int


@dataclass(frozen=True, slots=True)
class SampledSequence:
    """One continuation; its tokens end with those that completed a stop."""

    # int32 and float32, of one length.
    tokens: bytes
    logprobs: bytes
    # False if `max_tokens` ended it.
    was_stopped: bool
    topk: TopK | None = None


@dataclass(frozen=True, slots=True)
class Samples:
    """Continuations, and float32 log-probabilities of the prompt, of which the first is NaN."""

    sequences: Sequence[SampledSequence]
    prompt_logprobs: bytes | None = None
    topk_prompt_logprobs: TopK | None = None
    device_seconds: float = field(default=0.0, compare=False)
