"""Requests as `llama-server` gets them: built of what was read, so that nothing else passes."""

from collections.abc import Mapping
from typing import Any

import msgspec

from windlass.inference_api.errors import bad_value, unsupported
from windlass.inference_api.formats import TextFormat
from windlass.inference_api.llamacpp import checked_chat, checked_completion, only_prompt
from windlass.inference_api.requests import (
    ChatRequest,
    CompletionRequest,
    StreamOptions,
    biases,
    stops,
)
from windlass.inference_api.tools import wanted
from windlass_agent.engines.kept.salted import salted

# llama.cpp takes its own default for the largest number.
_SEEDS = 2**32 - 1
_COMPLETION_TOKENS = 16
# OpenAI's defaults instead of llama.cpp's.
_DEFAULTS: dict[str, Any] = {
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}


# A slot has no priorities.
SaltedChat, SaltedCompletion = salted(ChatRequest), salted(CompletionRequest)


def chat_body(request: ChatRequest, *, context: int, renders: frozenset[str]) -> dict[str, Any]:
    """The body of a chat for a server of so many tokens of context; raises ApiError.

    `renders` is what the model's chat template shows of `tools` and `tool_calls`; the rest would
    be left out in silence.
    """
    checked_chat(request)
    _check_rendered(request, renders)
    tokens = request.max_completion_tokens or request.max_tokens
    body = _generation(request, tokens, context=context)
    body["messages"] = request.messages
    choice = wanted(request.tools, request.tool_choice)
    if choice.functions:
        body["tools"] = [function.told() for _, function in choice.functions]
        body["tool_choice"] = "required" if choice.forced else "auto"
        if request.parallel_tool_calls is not None:
            body["parallel_tool_calls"] = request.parallel_tool_calls
    if request.response_format not in (None, TextFormat()):
        body["response_format"] = msgspec.to_builtins(request.response_format)
    if request.chat_template_kwargs:
        body["chat_template_kwargs"] = request.chat_template_kwargs
    if request.logprobs:
        body["logprobs"] = True
        # Without the token's own it reports none at all.
        body["top_logprobs"] = max(request.top_logprobs or 0, 1)
    return body


def _check_rendered(request: ChatRequest, renders: frozenset[str]) -> None:
    if request.tools and "tools" not in renders:
        raise unsupported("tools", "the chat template of this model does not render tools.")
    for at, message in enumerate(request.messages):
        called = message.get("tool_calls") or message.get("role") == "tool"
        if called and "tool_calls" not in renders:
            why = "the chat template of this model does not render calls of tools."
            raise unsupported(f"messages[{at}]", why)


def completion_body(request: CompletionRequest, *, context: int) -> dict[str, Any]:
    """The body of a completion for a server of so many tokens of context; raises ApiError."""
    checked_completion(request)
    body = _generation(request, request.max_tokens or _COMPLETION_TOKENS, context=context)
    body["prompt"] = only_prompt(request.prompt)
    return body


def _generation(
    request: ChatRequest | CompletionRequest, tokens: int | None, *, context: int
) -> dict[str, Any]:
    if tokens is not None and tokens > context:
        newer = getattr(request, "max_completion_tokens", None)
        where = "max_tokens" if newer is None else "max_completion_tokens"
        raise bad_value(f"This model's maximum context length is {context} tokens.", where)
    options = request.stream_options or StreamOptions()
    body = _DEFAULTS | {
        name: value for name in _DEFAULTS if (value := getattr(request, name, None)) is not None
    }
    body |= {
        "model": request.model,
        "top_k": max(request.top_k or 0, 0),
        "stop": list(stops(request.stop)),
        "ignore_eos": request.ignore_eos,
        # Penalties look at all tokens, not at the last ones.
        "repeat_last_n": context,
        "stream": bool(request.stream),
    }
    if tokens is not None:
        body["max_tokens"] = tokens
    if request.seed is not None:
        body["seed"] = request.seed % _SEEDS
    if request.logit_bias:
        # As numbers: a key that is none to llama.cpp, such as `1_0`, would be read as a text.
        body["logit_bias"] = biases(request.logit_bias)
    if request.stream:
        body["stream_options"] = {"include_usage": options.include_usage}
        body["timings_per_token"] = options.continuous_usage_stats
    return body


def placed(
    body: Mapping[str, Any], *, slot: int, continued: bool, adapter: int | None, adapters: int
) -> dict[str, Any]:
    """The body for one slot of a server with so many adapters, of which it uses one or none."""
    return {
        **body,
        "id_slot": slot,
        "cache_prompt": continued,
        # All are named: it does not notice by itself that a prompt was read with another one.
        "lora": [{"id": one, "scale": float(one == adapter)} for one in range(adapters)],
    }
