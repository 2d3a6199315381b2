"""Bodies that engines of the kind `vllm` get: OpenAI's fields, and a list of vLLM's own.

vLLM takes any field. Some steer the engine or read what belongs to others, and one that it does
not know it leaves out in silence; so all that is not here is refused by name.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, cast

import msgspec
from msgspec import Meta, Struct

from windlass.inference_api.errors import bad_value, not_served, unsupported
from windlass.inference_api.formats import TextFormat
from windlass.inference_api.messages import check_conversation, check_parts, conversation
from windlass.inference_api.ordinary import is_ordinary
from windlass.inference_api.parameters import VLLM_REFUSED
from windlass.inference_api.requests import (
    MAX_CHOICES,
    MAX_INPUTS,
    ChatRequest,
    CompletionRequest,
    EmbeddingRequest,
    Probability,
    RerankRequest,
    TokenizeRequest,
    biases,
    check_chat,
    check_completion,
    check_rerank,
    parse,
)
from windlass.inference_api.schemas import check_schemas
from windlass.inference_api.structured import (
    StructuredOutputs,
    bounded,
    check_rules,
    count,
    schemas_of,
)
from windlass.inference_api.tools import AllowedTools, wanted

MAX_LOGPROBS = 20
MAX_TOKEN_IDS = 1024
MAX_STOP_IDS = 64
MAX_BAD_WORDS = 64

TokenId = Annotated[int, Meta(ge=0, lt=2**31)]
BadWord = Annotated[str, Meta(min_length=1, max_length=256)]
Long = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Truncation = Annotated[int, Meta(ge=-1, lt=2**31)]


# Name: type and words. Each may be null.
SAMPLING: dict[str, tuple[Any, str]] = {
    "seed": (Long, "Of 64 bits."),
    "min_p": (Probability, "Least probability of a token, relative to the likeliest one's."),
    "repetition_penalty": (
        Annotated[float, Meta(gt=0, le=2)],
        "Above 1 discourages tokens of the prompt and the answer; at most 2.",
    ),
    "stop_token_ids": (
        Annotated[list[TokenId], Meta(max_length=MAX_STOP_IDS)],
        f"Tokens that end the answer; at most {MAX_STOP_IDS}.",
    ),
    "bad_words": (
        Annotated[list[BadWord], Meta(max_length=MAX_BAD_WORDS)],
        f"Words that the answer does not contain; at most {MAX_BAD_WORDS}.",
    ),
    "allowed_token_ids": (
        Annotated[list[TokenId], Meta(min_length=1, max_length=MAX_TOKEN_IDS)],
        f"The only tokens of the answer; at most {MAX_TOKEN_IDS}.",
    ),
    "include_stop_str_in_output": (bool, "Whether the answer keeps the stop sequence."),
    "skip_special_tokens": (bool, "Whether special tokens are left out of the text."),
    "spaces_between_special_tokens": (bool, "Whether blanks are put between them."),
    "truncate_prompt_tokens": (
        Truncation,
        "Tokens of the prompt that are kept; -1: those that fit.",
    ),
    "return_token_ids": (bool, "Whether token ids come beside the text."),
    "structured_outputs": (
        StructuredOutputs,
        "One of `json`, `regex`, `choice`, `grammar` and `json_object`; at most 64 KiB.",
    ),
    "thinking_token_budget": (Truncation, "Tokens of reasoning; -1: no bound."),
}
# On no list, but refused with a reason: vLLM's own type, so that nothing else slips through.
_NAMED = {"prompt_logprobs": (int, "")}
CHAT: dict[str, tuple[Any, str]] = {
    "reasoning_effort": (
        Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"],
        "Read by the chat template, where it has such a control.",
    ),
    "add_generation_prompt": (bool, "Whether the template opens an answer."),
    "continue_final_message": (bool, "Whether the answer goes on with the last message."),
}
EMBEDDING = {"truncate_prompt_tokens": SAMPLING["truncate_prompt_tokens"]}


def _with(base: type[Struct], extra: dict[str, tuple[Any, str]]) -> type[Struct]:
    fields = [(name, kind | None, None) for name, (kind, _) in extra.items()]
    return msgspec.defstruct(
        f"Vllm{base.__name__}", fields, bases=(base,), kw_only=True, forbid_unknown_fields=True
    )


VllmChatRequest = cast("type[ChatRequest]", _with(ChatRequest, _NAMED | SAMPLING | CHAT))
VllmCompletionRequest = cast("type[CompletionRequest]", _with(CompletionRequest, _NAMED | SAMPLING))
VllmEmbeddingRequest = cast("type[EmbeddingRequest]", _with(EmbeddingRequest, EMBEDDING))

# Arguments of what vLLM hands these values to: its own rendering, transformers' and Jinja's.
TEMPLATE_ARGUMENTS = frozenset(
    {
        "self", "kwargs", "model_config", "tokenizer", "messages", "conversation", "conversations",
        "tools", "documents", "chat_template", "add_generation_prompt", "continue_final_message",
        "tokenize", "sanitize_control_tokens", "padding", "truncation", "max_length",
        "return_tensors", "return_dict", "return_assistant_tokens_mask", "tokenizer_kwargs",
        "processor_kwargs", "load_audio_from_video",
    }
)  # fmt: skip


def check(path: str, body: bytes) -> None:
    """Refuses what an engine of this kind must not get; raises ApiError that names the field."""
    match path:
        case "/v1/chat/completions":
            if not is_ordinary(body):
                check_chat_in_full(body)
        case "/v1/completions":
            _check_completion(parse(VllmCompletionRequest, body))
        case "/v1/embeddings":
            count(parse(VllmEmbeddingRequest, body).input, "input", most=MAX_INPUTS)
        case "/v1/rerank":
            check_rerank(parse(RerankRequest, body))
        case "/tokenize":
            if messages := parse(TokenizeRequest, body).messages:
                conversation(messages)
                check_parts(messages)
        case _:
            raise not_served(path)


def check_chat_in_full(body: bytes) -> None:
    """Makes the check of a chat that is not an ordinary one; raises ApiError."""
    request = parse(VllmChatRequest, body)
    check_chat(request, VLLM_REFUSED)
    check_conversation(request.messages)
    check_parts(request.messages)
    wanted(request.tools, request.tool_choice)
    if isinstance(request.tool_choice, AllowedTools):
        raise unsupported("tool_choice", "allowed_tools is not supported by this model's engine")
    tools = request.tools or []
    for index, tool in enumerate(tools):
        bounded(tool, f"tools[{index}]")
    if taken := TEMPLATE_ARGUMENTS & (request.chat_template_kwargs or {}).keys():
        raise bad_value(f"{', '.join(sorted(taken))} cannot be set here", "chat_template_kwargs")
    bounded(request.chat_template_kwargs, "chat_template_kwargs")
    schemas = [
        (f"tools[{index}].function.parameters", tool.function.parameters or {})
        for index, tool in enumerate(tools)
    ]
    _check_generation(request, schemas)


def _check_completion(request: CompletionRequest) -> None:
    check_completion(request, VLLM_REFUSED)
    if count(request.prompt, "prompt", most=MAX_CHOICES) * request.choices() > MAX_CHOICES:
        raise bad_value(f"must ask for at most {MAX_CHOICES} answers, `n` of each prompt", "prompt")
    if request.echo and request.logprobs is not None:
        raise unsupported("echo", f"{VLLM_REFUSED['prompt_logprobs']}; leave logprobs out")
    _check_generation(request)


def _check_generation(request: Any, schemas: Sequence[tuple[str, object]] = ()) -> None:
    """Checks what chats and completions share, and all schemas, with `schemas` of the tools."""
    biases(request.logit_bias)
    form, held = request.response_format, request.structured_outputs
    check_rules(held, form)
    if request.allowed_token_ids and (schemas or held or form not in (None, TextFormat())):
        why = "allowed_token_ids cannot be set with tools or a form of the answer"
        raise bad_value(why, "allowed_token_ids")
    check_schemas([*schemas, *schemas_of(form, held)])
