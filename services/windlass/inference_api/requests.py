"""Types of inference requests, and their conversion to `SamplingParams`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from windlass.core import misfits
from windlass.inference_api.errors import (
    ApiError,
    bad_value,
    not_served,
    unknown_parameter,
    unsupported,
)
from windlass.inference_api.formats import ResponseFormat, TextFormat
from windlass.inference_api.messages import check_parts, conversation
from windlass.inference_api.parameters import REFUSED, refusal
from windlass.inference_api.tools import Tool, ToolChoice, wanted

MAX_STOPS = 4
MAX_CHOICES = 16
MAX_INPUTS = 2048
# Of what is told beside a token to whoever speaks to the engine itself.
MAX_TOP = 100

Probability = Annotated[float, Meta(ge=0, le=1)]
Temperature = Annotated[float, Meta(ge=0, le=2)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
Count = Annotated[int, Meta(ge=0)]
# Engines hold these in 32 bits.
TopK = Annotated[int, Meta(ge=-1, lt=2**31)]
MinTokens = Annotated[int, Meta(ge=0, lt=2**31)]
Input = str | list[str | int | list[int]]
"""A text, several, the token ids of one, or those of several; no mixture."""


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """Parameters of the generation of one sequence."""

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_tokens: frozenset[int] = frozenset()
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    min_tokens: int = 0
    ignore_eos: bool = False
    logprobs: int | None = None
    """Alternatives reported beside each token; None: no log-probabilities at all."""
    prompt_logprobs: bool = False
    prompt_top: int | None = None
    """Alternatives reported beside each token of the prompt; None: as many as of the answer."""


class StreamOptions(Struct, forbid_unknown_fields=True):
    """`continuous_usage_stats` is vLLM's: usage so far in every chunk."""

    include_usage: bool = False
    include_obfuscation: bool = False
    continuous_usage_stats: bool = False


class Generation(Struct, kw_only=True, forbid_unknown_fields=True):
    """Fields that chat and completions share."""

    model: str
    n: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None = None
    temperature: Temperature | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: TopK | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: dict[str, Annotated[float, Meta(ge=-100, le=100)]] | None = None
    min_tokens: MinTokens = 0
    ignore_eos: bool = False
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    # Without effect or refused; parameters.py says why.
    user: str | None = None
    use_beam_search: Any = None
    structured_outputs: Any = None
    guided_json: Any = None
    guided_regex: Any = None
    guided_choice: Any = None
    guided_grammar: Any = None

    def choices(self) -> int:
        """The number of answers to one prompt."""
        return self.n or 1

    def sampling(self, *, max_tokens: int, logprobs: int | None, choice: int) -> SamplingParams:
        """The parameters of answer number `choice`; a seed differs for each answer."""
        return SamplingParams(
            max_tokens=max_tokens,
            temperature=1.0 if self.temperature is None else self.temperature,
            top_p=1.0 if self.top_p is None else self.top_p,
            top_k=max(self.top_k or 0, 0),
            seed=None if self.seed is None else (self.seed + choice) % 2**63,
            stop=stops(self.stop),
            presence_penalty=self.presence_penalty or 0.0,
            frequency_penalty=self.frequency_penalty or 0.0,
            logit_bias=biases(self.logit_bias),
            min_tokens=self.min_tokens,
            ignore_eos=self.ignore_eos,
            logprobs=logprobs,
        )


class ChatRequest(Generation, kw_only=True):
    """POST /v1/chat/completions."""

    messages: list[dict[str, Any]]
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    # Without effect or refused; parameters.py says why.
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    prompt_cache_options: dict[str, Any] | None = None
    metadata: dict[str, str] | None = None
    store: bool | None = None
    service_tier: str | None = None
    modalities: list[str] | None = None
    reasoning_effort: str | None = None
    verbosity: Literal["low", "medium", "high"] | None = None
    moderation: Any = None
    audio: Any = None
    functions: Any = None
    function_call: Any = None
    prediction: Any = None
    web_search_options: Any = None
    chat_template: Any = None
    continue_final_message: Any = None


class CompletionRequest(Generation, kw_only=True):
    """POST /v1/completions."""

    prompt: Input
    max_tokens: Count | None = 16
    logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    echo: bool | None = None
    best_of: int | None = None
    suffix: str | None = None
    response_format: ResponseFormat | None = None


class EmbeddingRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/embeddings."""

    model: str
    input: Input
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None
    user: str | None = None


class ScoreRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/score: a text, a conversation, or several of those."""

    model: str
    input: str | list[str | dict[str, Any] | list[dict[str, Any]]]


class RerankRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/rerank, as vLLM and Jina have it: texts by how well they fit a query."""

    model: str
    query: Annotated[str, Meta(min_length=1)]
    documents: Annotated[list[Annotated[str, Meta(min_length=1)]], Meta(min_length=1)]
    top_n: Annotated[int, Meta(ge=1)] | None = None
    user: str | None = None


class TokenizeRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """POST /tokenize: a prompt, or messages as a chat would render them."""

    model: str | None = None
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    add_special_tokens: bool = True
    add_generation_prompt: bool = True


class LoadAdapterRequest(Struct, kw_only=True):
    """POST /v1/load_lora_adapter."""

    lora_name: Annotated[str, Meta(min_length=1, max_length=256, pattern=r"^[\w.:@/-]+$")]
    lora_path: Annotated[str, Meta(min_length=1)]


class UpdateWeightsRequest(Struct, kw_only=True):
    """POST /update_weights: a version of the medium at `path`, once what is open has ended."""

    version: Annotated[int, Meta(ge=1, lt=2**53)]
    path: Annotated[str, Meta(min_length=1, max_length=4096)]
    wait_seconds: Annotated[float, Meta(ge=0, le=240)] = 60


class AbortRequest(Struct, kw_only=True):
    """POST /inference/v1/abort_requests, by the ids that vLLM makes of `x-request-id`."""

    request_ids: list[str]


class UnloadAdapterRequest(Struct, kw_only=True):
    """POST /v1/unload_lora_adapter."""

    lora_name: str


R = TypeVar("R", bound=Struct)


def parse(kind: type[R], body: bytes) -> R:
    """Reads a request; raises ApiError 400 that names the field."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise refused(error, kind) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError(
            "We could not parse the JSON body of your request.", code="invalid_json"
        ) from error


def refused(error: msgspec.ValidationError, kind: type) -> ApiError:
    """The refusal of a body that is no `kind`, by the name of the field, with its choices."""
    reason, _, path = str(error).partition(" - at `$")
    where = re.sub(r"^\.", "", path.rstrip("`"))
    if missing := re.search(r"missing required field `(\w+)`", reason):
        name = f"{where}.{missing[1]}" if where else missing[1]
        message = f"Missing required parameter: '{name}'."
        return ApiError(message, param=name, code="missing_required_parameter")
    if unknown := re.search(r"contains unknown field `(.*)`", reason):
        name = f"{where}.{unknown[1]}" if where else unknown[1]
        return unknown_parameter(name)
    said = misfits.words(misfits.with_choices(reason, path.rstrip("`"), kind))
    said = said[:1].lower() + said[1:].replace("`", "")
    message = f"Invalid value for '{where or 'the body'}': {said}."
    return ApiError(message, param=where or None, code="invalid_value")


def check_chat(request: ChatRequest, refused: Mapping[str, str] = REFUSED) -> None:
    """Refuses what this engine cannot honour, by name."""
    _check_shared(request, refused)
    if request.max_tokens is not None and request.max_completion_tokens is not None:
        raise bad_value("max_tokens and max_completion_tokens cannot both be set.", "max_tokens")
    if request.top_logprobs is not None and not request.logprobs:
        raise bad_value("top_logprobs needs logprobs to be true", "top_logprobs")


def check_completion(request: CompletionRequest, refused: Mapping[str, str] = REFUSED) -> None:
    """Refuses what this engine cannot honour, by name."""
    _check_shared(request, refused)
    if request.response_format not in (None, TextFormat()):
        raise unsupported("response_format", "only chat completions support a response format")
    if request.best_of not in (None, request.choices()):
        raise unsupported("best_of", "must equal n")
    if request.max_tokens == 0 and not request.echo:
        raise bad_value("max_tokens must be at least 1 unless echo is true", "max_tokens")


def _check_shared(request: ChatRequest | CompletionRequest, refused: Mapping[str, str]) -> None:
    if found := refusal(request, refused):
        raise unsupported(*found)
    if (request.stream_options or StreamOptions()).include_obfuscation:
        raise unsupported(
            "stream_options.include_obfuscation", "padding of chunks is not supported"
        )
    stops(request.stop)
    if request.stream_options is not None and not request.stream:
        raise bad_value("stream_options is only allowed with stream", "stream_options")


def check(path: str, body: bytes, *, strict: bool = False) -> None:
    """Refuses what no engine of ours would answer; raises ApiError that names the field.

    `strict` leaves nothing to the engine: other routes and other fields of parts are refused too.
    """
    match path:
        case "/v1/chat/completions":
            chat = parse(ChatRequest, body)
            check_chat(chat)
            conversation(chat.messages)
            if strict:
                check_parts(chat.messages)
            wanted(chat.tools, chat.tool_choice)
        case "/v1/completions":
            check_completion(parse(CompletionRequest, body))
        case "/v1/embeddings":
            parse(EmbeddingRequest, body)
        case "/v1/score":
            parse(ScoreRequest, body)
        case "/v1/rerank":
            check_rerank(parse(RerankRequest, body))
        case _ if strict:
            raise not_served(path)


def check_rerank(request: RerankRequest) -> None:
    """Refuses more texts than one request may have."""
    if len(request.documents) > MAX_INPUTS:
        raise bad_value(f"documents holds at most {MAX_INPUTS} texts", "documents")


def stops(stop: str | list[str] | None) -> tuple[str, ...]:
    """The stop sequences; raises ApiError when there are too many or one is empty."""
    found = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if len(found) > MAX_STOPS:
        raise bad_value(f"stop holds at most {MAX_STOPS} sequences", "stop")
    if not all(found):
        raise bad_value("a stop sequence must not be empty", "stop")
    return found


def biases(given: dict[str, float] | None) -> tuple[tuple[int, float], ...]:
    """Token ids and what to add to their logits."""
    try:
        return tuple((int(token), bias) for token, bias in (given or {}).items())
    except ValueError as error:
        raise bad_value("keys of logit_bias must be token ids", "logit_bias") from error
