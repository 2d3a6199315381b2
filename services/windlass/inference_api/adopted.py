"""Bodies that a serving stack of others gets: OpenAI's fields, and those of ranks and scores."""

from windlass.inference_api.errors import not_served, unsupported
from windlass.inference_api.formats import JsonSchemaFormat
from windlass.inference_api.messages import check_parts, conversation
from windlass.inference_api.parameters import REFUSED
from windlass.inference_api.requests import (
    ChatRequest,
    CompletionRequest,
    EmbeddingRequest,
    RerankRequest,
    ScoreRequest,
    biases,
    check_chat,
    check_completion,
    check_rerank,
    parse,
)
from windlass.inference_api.schemas import check_schemas
from windlass.inference_api.tools import wanted

_NOT_OPENAI = "OpenAI has no such parameter, and this model's serving stack gets OpenAI's alone"
_OTHERS = ("top_k", "min_tokens", "ignore_eos")


def check(path: str, body: bytes) -> None:
    """Refuses what a stack may not honour; raises ApiError that names the field."""
    match path:
        case "/v1/chat/completions":
            _check_chat(parse(ChatRequest, body))
        case "/v1/completions":
            _check_completion(parse(CompletionRequest, body))
        case "/v1/embeddings":
            parse(EmbeddingRequest, body)
        case "/v1/rerank":
            check_rerank(parse(RerankRequest, body))
        case "/v1/score":
            parse(ScoreRequest, body)
        case _:
            raise not_served(path)


def _check_chat(request: ChatRequest) -> None:
    check_chat(request, REFUSED)
    if request.chat_template_kwargs:
        raise unsupported("chat_template_kwargs", _NOT_OPENAI)
    _check_generation(request)
    conversation(request.messages)
    check_parts(request.messages)
    schemas = [
        (f"tools[{index}].function.parameters", function.parameters or {})
        for index, function in wanted(request.tools, request.tool_choice).functions
    ]
    if isinstance(request.response_format, JsonSchemaFormat):
        schemas.append(("response_format", request.response_format.json_schema.schema))
    check_schemas(schemas)


def _check_completion(request: CompletionRequest) -> None:
    check_completion(request, REFUSED)
    _check_generation(request)


def _check_generation(request: ChatRequest | CompletionRequest) -> None:
    for name in _OTHERS:
        if getattr(request, name):
            raise unsupported(name, _NOT_OPENAI)
    biases(request.logit_bias)
