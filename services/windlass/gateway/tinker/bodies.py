"""JSON bodies of the SDK."""

from typing import Any, Literal

from msgspec import Struct, field

Metadata = dict[str, Any] | None


class CreateSessionBody(Struct):
    """Begins a session."""

    tags: list[str] = []
    user_metadata: Metadata = None
    sdk_version: str = ""
    project_id: str | None = None
    display_name: str | None = None


class SessionNameBody(Struct):
    """Names a session."""

    session_id: str


class EndReasonBody(Struct):
    """Reason of an end."""

    type: Literal["success", "errored", "interrupted"]


class FinishSessionBody(Struct):
    """Ends a session."""

    reason: EndReasonBody
    detail: str | None = None


class LoraConfigBody(Struct):
    """Settings of an adapter."""

    rank: int = 32
    seed: int | None = None
    train_unembed: bool = True
    train_mlp: bool = True
    train_attn: bool = True


class OptimizerConfigBody(Struct):
    """Kind of an optimizer."""

    type: str = "adamw"


class CreateModelBody(Struct):
    """Makes a run."""

    session_id: str
    model_seq_id: int
    base_model: str
    user_metadata: Metadata = None
    lora_config: LoraConfigBody | None = None
    optimizer_config: OptimizerConfigBody | None = None


class ModelNameBody(Struct):
    """Names a run."""

    model_id: str


class TensorBody(Struct):
    """A tensor as numbers."""

    data: list[float]
    dtype: Literal["int64", "float32"]
    shape: list[int] | None = None
    sparse_crow_indices: list[int] | None = None
    sparse_col_indices: list[int] | None = None


class ChunkBody(Struct):
    """A part of a prompt: tokens, or what is refused."""

    type: str = "encoded_text"
    tokens: list[int] | None = None


class ModelInputBody(Struct):
    """A prompt."""

    chunks: list[ChunkBody]


class DatumBody(Struct):
    """One sequence and what its loss needs."""

    model_input: ModelInputBody
    loss_fn_inputs: dict[str, TensorBody] = {}


class LossInputBody(Struct):
    """Sequences and their loss."""

    data: list[DatumBody]
    loss_fn: str
    loss_fn_config: dict[str, float | str] | None = None


class ForwardBackwardBody(Struct):
    """A computation, of which older clients name the input by its kind."""

    model_id: str
    forward_backward_input: LossInputBody | None = None
    forward_input: LossInputBody | None = None
    seq_id: int | None = None


class OptimStepBody(Struct):
    """A step of an optimizer."""

    model_id: str
    adam_params: dict[str, float | str] | None = None
    optimizer_params: dict[str, float | str] | None = None
    seq_id: int | None = None


class SaveWeightsBody(Struct):
    """Saves a state."""

    model_id: str
    path: str | None = None
    seq_id: int | None = None
    ttl_seconds: int | None = None
    overwrite: bool = False
    user_metadata: Metadata = None


class LoadWeightsBody(Struct):
    """Loads a state, into a run that is there or a new one."""

    path: str
    optimizer: bool
    model_id: str | None = None
    seq_id: int | None = None
    session_id: str | None = None
    model_seq_id: int | None = None
    base_model: str | None = None
    user_metadata: Metadata = None
    weights_access_token: str | None = None


class SaveExternalBody(Struct):
    """Saves weights for other programs."""

    model_id: str
    path: str
    seq_id: int | None = None
    ttl_seconds: int | None = None
    age_encryption_recipients: list[str] | None = None


class CopyWeightsBody(Struct):
    """Copies a checkpoint."""

    source_path: str
    session_id: str | None = None
    model_seq_id: int | None = None
    destination_project_id: str | None = None
    ttl_seconds: int | None = None
    weights_access_token: str | None = None


class ProjectNameBody(Struct):
    """Names a project."""

    project_id: str


class CreateLossBody(Struct):
    """Stores a loss that torch.fx has traced."""

    session_id: str
    custom_loss_seq_id: int
    name: str
    inputs: list[dict[str, Any]]
    graph: dict[str, Any]


class SaveForSamplerBody(Struct):
    """Saves weights that samplers have."""

    model_id: str
    path: str | None = None
    sampling_session_seq_id: int | None = None
    kind: Literal["snapshot", "inflight"] = "snapshot"
    seq_id: int | None = None
    ttl_seconds: int | None = None
    user_metadata: Metadata = None


class CreateSamplerBody(Struct):
    """Makes a sampler."""

    session_id: str
    sampling_session_seq_id: int
    base_model: str | None = None
    model_path: str | None = None


class SamplingParamsBody(Struct):
    """Parameters of sampling."""

    max_tokens: int | None = None
    seed: int | None = None
    stop: str | list[str | int] | None = None
    temperature: float = 1.0
    top_k: int = -1
    top_p: float = 1.0


class SampleBody(Struct):
    """Asks for continuations."""

    prompt: ModelInputBody
    sampling_params: SamplingParamsBody
    num_samples: int = 1
    sampling_session_id: str | None = None
    seq_id: int | None = None
    base_model: str | None = None
    model_path: str | None = None
    prompt_logprobs: bool | None = None
    topk_prompt_logprobs: int | None = None
    topk_sample_logprobs: int | None = None


class RetrieveBody(Struct):
    """Asks for a result."""

    request_id: str
    allow_metadata_only: bool = False


class SamplerTargetBody(Struct):
    """Names one client of a sampler."""

    sampling_session_id: str
    type: Literal["sampling_session"] = "sampling_session"
    cloned_sampler_id: int = 0


class RetrieveManyBody(Struct):
    """Asks which requests of a client have ended since a cursor."""

    target: SamplerTargetBody
    prev_cursor: int = 0
    timeout: float | None = None
    # Results stay for their time whoever has them.
    retrieved_request_ids: list[str] = []


class RequestNameBody(Struct):
    """Names a request."""

    request_id: str


class SamplerNameBody(Struct):
    """Names a sampler."""

    sampling_session_id: str


class SearchOwnerBody(Struct):
    """Names whose sessions are searched."""

    type: Literal["own", "accessible", "user"] = "own"
    owner_urns: list[str] = []


class SearchStatusBody(Struct):
    """Names a state that sessions have."""

    type: Literal["active", "cancelled", "failed", "client_finished"]
    reasons: list[Literal["success", "errored", "interrupted"]] | None = None


class SearchCursorBody(Struct):
    """Names where a page begins."""

    last_session_id: str


class SearchBody(Struct):
    """Searches sessions."""

    session_id: str | None = None
    project_ids: list[str] | None = None
    user_metadata: Metadata = None
    display_name: str | None = None
    owner: SearchOwnerBody = field(default_factory=SearchOwnerBody)
    statuses: list[SearchStatusBody] | None = None
    limit: int = 50
    cursor: SearchCursorBody | None = None


class PathNameBody(Struct):
    """Names a checkpoint."""

    tinker_path: str


class TtlBody(Struct):
    """Sets how long a checkpoint is kept; for ever without."""

    ttl_seconds: int | None = None


class ModelBody(Struct):
    """Makes a sampler's checkpoint a model of the project."""

    suffix: str
    base_model: str = ""
