"""Bodies that engines of the kind `sglang` get: what SGLang honours of OpenAI's fields and vLLM's.

SGLang leaves out in silence what it does not know; so all that is not here is refused by name.
"""

from typing import Any, cast

import msgspec
from msgspec import Struct

from windlass.inference_api.errors import bad_value, not_served, unsupported
from windlass.inference_api.messages import check_parts, conversation
from windlass.inference_api.parameters import SGLANG_REFUSED
from windlass.inference_api.requests import (
    MAX_CHOICES,
    ChatRequest,
    CompletionRequest,
    biases,
    check_chat,
    check_completion,
    parse,
)
from windlass.inference_api.schemas import check_schemas
from windlass.inference_api.structured import bounded, check_rules, count, schemas_of
from windlass.inference_api.tools import wanted
from windlass.inference_api.vllm import CHAT, SAMPLING, TEMPLATE_ARGUMENTS

# Of vLLM's own fields, those that SGLang has too.
SHARED = (
    "min_p",
    "repetition_penalty",
    "stop_token_ids",
    "skip_special_tokens",
    "structured_outputs",
)
SHARED_IN_CHATS = ("reasoning_effort", "continue_final_message")


def _with(base: type[Struct], extra: dict[str, tuple[Any, str]]) -> type[Struct]:
    fields = [(name, kind | None, None) for name, (kind, _) in extra.items()]
    return msgspec.defstruct(
        f"Sglang{base.__name__}", fields, bases=(base,), kw_only=True, forbid_unknown_fields=True
    )


_SAMPLING = {name: SAMPLING[name] for name in SHARED}
_CHAT = _SAMPLING | {name: CHAT[name] for name in SHARED_IN_CHATS}
SglangChatRequest = cast("type[ChatRequest]", _with(ChatRequest, _CHAT))
SglangCompletionRequest = cast("type[CompletionRequest]", _with(CompletionRequest, _SAMPLING))


def check(path: str, body: bytes) -> None:
    """Refuses what an engine of this kind must not get; raises ApiError that names the field."""
    match path:
        case "/v1/chat/completions":
            checked_chat(parse(SglangChatRequest, body))
        case "/v1/completions":
            checked_completion(parse(SglangCompletionRequest, body))
        case _:
            raise not_served(path)


def checked_chat(request: ChatRequest) -> None:
    """Refuses what this kind of engine cannot honour, by name."""
    check_chat(request, SGLANG_REFUSED)
    conversation(request.messages)
    check_parts(request.messages)
    functions = wanted(request.tools, request.tool_choice).functions
    for index, function in functions:
        bounded(function, f"tools[{index}]")
    if taken := TEMPLATE_ARGUMENTS & (request.chat_template_kwargs or {}).keys():
        raise bad_value(f"{', '.join(sorted(taken))} cannot be set here", "chat_template_kwargs")
    bounded(request.chat_template_kwargs, "chat_template_kwargs")
    _check_generation(
        request,
        [
            (f"tools[{index}].function.parameters", function.parameters or {})
            for index, function in functions
        ],
    )


def checked_completion(request: CompletionRequest) -> None:
    """Refuses what this kind of engine cannot honour, by name."""
    check_completion(request, SGLANG_REFUSED)
    if count(request.prompt, "prompt", most=MAX_CHOICES) * request.choices() > MAX_CHOICES:
        raise bad_value(f"must ask for at most {MAX_CHOICES} answers, `n` of each prompt", "prompt")
    if request.echo and request.logprobs is not None:
        why = "log-probabilities of a prompt are not supported by this model's engine"
        raise unsupported("echo", f"{why}; leave logprobs out")
    if request.max_tokens == 0:
        raise bad_value("max_tokens must be at least 1", "max_tokens")
    _check_generation(request, [])


def _check_generation(request: Any, schemas: list[tuple[str, object]]) -> None:
    """Checks what chats and completions share, and all schemas, with `schemas` of the tools."""
    biases(request.logit_bias)
    form, held = request.response_format, request.structured_outputs
    check_rules(held, form)
    check_schemas([*schemas, *schemas_of(form, held)])
