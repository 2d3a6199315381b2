"""The inference endpoints, which are answered outside of FastAPI: made of the decoded types."""

from typing import Any

import msgspec

from windlass.gateway.openapi.messages import Schema, nullable, obj
from windlass.gateway.openapi.objects import COUNT, NUMBER, TEXT, kind, listed
from windlass.inference_api.requests import (
    ChatRequest,
    CompletionRequest,
    EmbeddingRequest,
    RerankRequest,
    ScoreRequest,
)

_USAGE = {
    "type": "object",
    "properties": {
        "prompt_tokens": COUNT,
        "completion_tokens": COUNT,
        "total_tokens": COUNT,
    },
    "required": ["prompt_tokens", "total_tokens"],
}


def _answer(name: str, choice: Schema) -> Schema:
    choices = {"index": COUNT, "finish_reason": nullable(TEXT), **choice}
    one = {"type": "object", "properties": choices, "required": ["index"]}
    fields = {
        "id": TEXT,
        "object": kind(name),
        "created": COUNT,
        "model": TEXT,
        "choices": listed(one),
        "usage": _USAGE,
    }
    required = ["id", "object", "created", "model", "choices"]
    return {"type": "object", "properties": fields, "required": required}


_MESSAGE: Schema = {
    "type": "object",
    "properties": {"role": TEXT, "content": nullable(TEXT), "refusal": nullable(TEXT)},
    "required": ["role", "content"],
}
_VECTOR = {"anyOf": [listed(NUMBER), TEXT]}
_EMBEDDED = obj({"object": kind("embedding"), "index": COUNT, "embedding": _VECTOR})
_RANKED = obj({"index": COUNT, "document": obj({"text": TEXT}), "relevance_score": NUMBER})
# Path, name, tag, request, answer, and whether it streams.
ENDPOINTS: tuple[tuple[str, str, str, type[msgspec.Struct], Schema, bool], ...] = (
    (
        "/v1/chat/completions",
        "create_chat_completion",
        "Answers a chat; with `stream` as server-sent events.",
        ChatRequest,
        _answer("chat.completion", {"message": _MESSAGE}),
        True,
    ),
    (
        "/v1/completions",
        "create_completion",
        "Completes a prompt; with `stream` as server-sent events.",
        CompletionRequest,
        _answer("text_completion", {"text": TEXT}),
        True,
    ),
    (
        "/v1/embeddings",
        "create_embedding",
        "Embeds text.",
        EmbeddingRequest,
        {
            "type": "object",
            "properties": {
                "object": kind("list"),
                "model": TEXT,
                "data": listed(_EMBEDDED),
                "usage": _USAGE,
            },
            "required": ["object", "model", "data", "usage"],
        },
        False,
    ),
    (
        "/v1/score",
        "create_score",
        "Scores texts and conversations by a reward model.",
        ScoreRequest,
        {"type": "object", "required": ["data"]},
        False,
    ),
    (
        "/v1/rerank",
        "create_rerank",
        "Ranks texts by how well they fit a query.",
        RerankRequest,
        {
            "type": "object",
            "properties": {
                "id": TEXT,
                "model": TEXT,
                "results": listed(_RANKED),
                "usage": _USAGE,
            },
            "required": ["model", "results", "usage"],
        },
        False,
    ),
)


def components() -> dict[str, Schema]:
    """Schemas of the request bodies, by their types' names."""
    _, found = msgspec.json.schema_components(
        [request for _, _, _, request, _, _ in ENDPOINTS],
        ref_template="#/components/schemas/{name}",
    )
    return found


def paths() -> dict[str, Any]:
    """The operations."""
    found = {}
    for path, name, text, request, answer, streams in ENDPOINTS:
        content: dict[str, Any] = {"application/json": {"schema": answer}}
        if streams:
            content["text/event-stream"] = {"schema": TEXT}
        reference = {"$ref": f"#/components/schemas/{request.__name__}"}
        found[path] = {
            "post": {
                "tags": ["inference"],
                "operationId": name,
                "summary": text,
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": reference}},
                },
                "responses": {"200": {"description": "Done.", "content": content}},
            }
        }
    return found
