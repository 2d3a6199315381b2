"""Bodies that engines of the kind `llamacpp` get: what llama-server honours of OpenAI's fields."""

from collections.abc import Sequence
from typing import Any

from windlass.inference_api.errors import bad_value, not_served, unsupported
from windlass.inference_api.formats import JsonSchemaFormat
from windlass.inference_api.messages import check_parts, conversation
from windlass.inference_api.parameters import REFUSED
from windlass.inference_api.requests import (
    ChatRequest,
    CompletionRequest,
    Input,
    biases,
    check_chat,
    check_completion,
    parse,
)
from windlass.inference_api.schemas import check_schemas
from windlass.inference_api.tools import wanted

LLAMACPP_REFUSED = REFUSED | {
    "echo": "an answer that begins with its prompt is not supported by this model's engine",
}


def check(path: str, body: bytes) -> None:
    """Refuses what an engine of this kind does not honour; raises ApiError that names the field."""
    match path:
        case "/v1/chat/completions":
            checked_chat(parse(ChatRequest, body))
        case "/v1/completions":
            checked_completion(parse(CompletionRequest, body))
        case _:
            raise not_served(path)


def checked_chat(request: ChatRequest) -> None:
    """Refuses what this kind of engine cannot honour, by name."""
    check_chat(request, LLAMACPP_REFUSED)
    _check_generation(request)
    conversation(request.messages)
    check_parts(request.messages)
    _check_numbers(request.chat_template_kwargs)
    schemas = [
        (f"tools[{index}].function.parameters", function.parameters or {})
        for index, function in wanted(request.tools, request.tool_choice).functions
    ]
    if isinstance(request.response_format, JsonSchemaFormat):
        schemas.append(("response_format", request.response_format.json_schema.schema))
    check_schemas(schemas)


def checked_completion(request: CompletionRequest) -> None:
    """Refuses what this kind of engine cannot honour, by name."""
    check_completion(request, LLAMACPP_REFUSED)
    _check_generation(request)
    if request.logprobs is not None:
        raise unsupported("logprobs", "this model's engine reports them for chats alone")
    only_prompt(request.prompt)


def only_prompt(prompt: Input) -> str | list[int]:
    """The one prompt of a request, a text or token ids; raises ApiError for none or several."""
    only: str | Sequence[str | int | list[int]] = prompt
    if isinstance(prompt, list) and len(prompt) == 1 and not isinstance(prompt[0], int):
        only = prompt[0]
    if isinstance(only, str):
        return only
    ids = [one for one in only if isinstance(one, int) and 0 <= one < 2**31]
    if not ids or len(ids) != len(only):
        raise bad_value("this model's engine takes one text, or the ids of its tokens", "prompt")
    return ids


def _check_generation(request: ChatRequest | CompletionRequest) -> None:
    if request.choices() > 1:
        raise unsupported("n", "several answers are not supported by this model's engine")
    if request.min_tokens:
        why = "a least number of tokens is not supported by this model's engine"
        raise unsupported("min_tokens", why)
    biases(request.logit_bias)


def _check_numbers(kwargs: dict[str, Any] | None) -> None:
    """Refuses integers that are none to llama.cpp, which answers them with an error of its own."""
    left: list[Any] = [kwargs]
    while left:
        value = left.pop()
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise bad_value(
                "integers have at most 64 bits, with their sign", "chat_template_kwargs"
            )
        if isinstance(value, dict | list):
            left += value.values() if isinstance(value, dict) else value
