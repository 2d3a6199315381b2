"""Requests as SGLang gets them: built of what was read, so that nothing else passes."""

import json
from typing import Any

import msgspec

from windlass.inference_api.formats import TextFormat
from windlass.inference_api.requests import (
    ChatRequest,
    CompletionRequest,
    StreamOptions,
    biases,
    stops,
)
from windlass.inference_api.schemas import read_schema
from windlass.inference_api.sglang import (
    SglangChatRequest,
    SglangCompletionRequest,
    checked_chat,
    checked_completion,
)
from windlass.inference_api.structured import StructuredOutputs
from windlass.inference_api.tools import wanted
from windlass_agent.engines.kept.salted import salted

SaltedChat, SaltedCompletion = salted(SglangChatRequest), salted(SglangCompletionRequest)
# By the same names there, and left to SGLang where they are not set.
_SAME = (
    "n", "temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty",
    "repetition_penalty", "stop_token_ids", "skip_special_tokens", "logprobs",
    "cache_salt", "priority",
)  # fmt: skip
_SAME_IN_CHATS = (
    "max_tokens", "max_completion_tokens", "top_logprobs", "reasoning_effort",
    "continue_final_message", "chat_template_kwargs",
)  # fmt: skip


def chat_body(request: ChatRequest) -> dict[str, Any]:
    """The body of a chat, without the model; raises ApiError."""
    checked_chat(request)
    body = _generation(request) | _set(request, _SAME_IN_CHATS)
    body["messages"] = request.messages
    choice = wanted(request.tools, request.tool_choice)
    if choice.functions:
        body["tools"] = [
            {"type": "function", "function": function} for _, function in choice.functions
        ]
        body["tool_choice"] = "required" if choice.forced else "auto"
        body |= _set(request, ("parallel_tool_calls",))
    if request.response_format not in (None, TextFormat()):
        body["response_format"] = request.response_format
    return body


def completion_body(request: CompletionRequest) -> dict[str, Any]:
    """The body of a completion, without the model; raises ApiError."""
    checked_completion(request)
    body = _generation(request) | _set(request, ("prompt", "max_tokens"))
    return body | ({"echo": True} if request.echo else {})


def _generation(request: Any) -> dict[str, Any]:
    body = _set(request, _SAME)
    if found := stops(request.stop):
        body["stop"] = found
    body |= {"min_tokens": request.min_tokens, "ignore_eos": request.ignore_eos}
    if request.top_k is not None:
        # Nought is off here, and nothing that SGLang takes.
        body["top_k"] = request.top_k or -1
    if request.logit_bias:
        body["logit_bias"] = {str(token): bias for token, bias in biases(request.logit_bias)}
    if request.structured_outputs is not None:
        body |= _rules(request.structured_outputs)
    if request.stream:
        options = request.stream_options or StreamOptions()
        body |= {
            "stream": True,
            "stream_options": {
                "include_usage": options.include_usage,
                "continuous_usage_stats": options.continuous_usage_stats,
            },
        }
    return body


def _rules(held: StructuredOutputs) -> dict[str, Any]:
    """SGLang's words for vLLM's rules."""
    if held.regex is not None:
        return {"regex": held.regex}
    if held.grammar is not None:
        return {"ebnf": held.grammar}
    if held.choice is not None:
        words = (json.dumps(word, ensure_ascii=False) for word in held.choice)
        return {"ebnf": f"root ::= {' | '.join(words)}"}
    if held.json is not None:
        schema = read_schema(held.json, "structured_outputs.json")
        form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
        return {"response_format": form}
    return {"response_format": {"type": "json_object"}}


def _set(request: msgspec.Struct, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name in names if (value := getattr(request, name)) is not None}
