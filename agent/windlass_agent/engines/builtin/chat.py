"""POST /v1/chat/completions."""

import json
from typing import Any

from aiohttp import web

from windlass_agent.engines.builtin.answer import Answer
from windlass_agent.engines.builtin.errors import bad_value, unsupported
from windlass_agent.engines.builtin.protocol import ChatRequest, check_chat, parse
from windlass_agent.engines.builtin.sequence import Piece, Sequence, Token
from windlass_agent.engines.builtin.service import EngineService
from windlass_agent.engines.builtin.tokenizer import ModelTokenizer

ROLES = ("system", "developer", "user", "assistant", "tool")


async def chat_completions(request: web.Request, service: EngineService) -> web.StreamResponse:
    """Answers a conversation."""
    body = parse(ChatRequest, await request.read())
    check_chat(body)
    with service.use(body.model) as adapter:
        prompt = await service.model.tokenizer.chat(
            conversation(body.messages),
            tools=None if body.tool_choice == "none" else body.tools,
            options=_template_options(body),
        )
        wanted = body.max_completion_tokens or body.max_tokens
        room = service.room(prompt, wanted, param="messages")
        logprobs = (body.top_logprobs or 0) if body.logprobs else None
        choices = [
            body.sampling(max_tokens=room, logprobs=logprobs, choice=choice)
            for choice in range(body.choices())
        ]
        pieces = service.start([(prompt, params) for params in choices], adapter)
        shape = ChatShape(service.model.tokenizer)
        answer = Answer(shape, body.model, prompt_tokens=len(prompt), pieces=pieces)
        if body.stream:
            return await answer.stream(request, body.stream_options)
        return await answer.whole()


def conversation(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages as a chat template expects them; raises ApiError that names the field."""
    if not messages:
        raise bad_value("messages must not be empty", "messages")
    return [_message(message, f"messages[{index}]") for index, message in enumerate(messages)]


def _message(message: dict[str, Any], where: str) -> dict[str, Any]:
    role = message.get("role")
    if role not in ROLES:
        raise bad_value(f"role must be one of {', '.join(ROLES)}", f"{where}.role")
    if message.get("content") is None and role != "assistant":
        raise bad_value(f"a {role} message needs content", f"{where}.content")
    plain: dict[str, Any] = {
        "role": "system" if role == "developer" else role,
        "content": _text(message.get("content"), f"{where}.content"),
    }
    if calls := message.get("tool_calls"):
        plain["tool_calls"] = _tool_calls(calls, f"{where}.tool_calls")
    for key in ("name", "tool_call_id"):
        if message.get(key) is not None:
            plain[key] = message[key]
    return plain


def _text(content: Any, where: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise bad_value("content must be a string or a list of parts", where)
    texts = []
    for index, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind != "text":
            raise unsupported(f"{where}[{index}].type", "only parts of type 'text' can be read")
        if not isinstance(part.get("text"), str):
            raise bad_value("text must be a string", f"{where}[{index}].text")
        texts.append(part["text"])
    return "".join(texts)


def _tool_calls(calls: Any, where: str) -> list[dict[str, Any]]:
    """Templates want the arguments as an object, OpenAI sends them as JSON text."""
    try:
        return [
            {**call, "function": {**call["function"], "arguments": _arguments(call["function"])}}
            for call in calls
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise bad_value("each needs function.name and JSON function.arguments", where) from error


def _arguments(function: dict[str, Any]) -> Any:
    arguments = function["arguments"]
    return json.loads(arguments or "{}") if isinstance(arguments, str) else arguments


def _template_options(body: ChatRequest) -> dict[str, Any]:
    options = body.chat_template_kwargs or {}
    reserved = {"tokenize", "tools", "chat_template", "conversation", "add_generation_prompt"}
    if taken := reserved & options.keys():
        raise bad_value(f"{', '.join(sorted(taken))} cannot be set here", "chat_template_kwargs")
    return options


class ChatShape:
    """Choices in the words of chat completions."""

    prefix = "chatcmpl"
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def __init__(self, tokenizer: ModelTokenizer):
        self._tokenizer = tokenizer

    def opening(self, sequence: Sequence) -> list[dict[str, Any]]:
        """The chunk with the role."""
        delta = {"role": "assistant", "content": ""}
        return [_choice(sequence, {"delta": delta}, logprobs=None, reason=None)]

    def delta(self, sequence: Sequence, piece: Piece) -> dict[str, Any]:
        """The choice of a chunk."""
        logprobs = self._logprobs(sequence, [piece])
        content = {"delta": {"content": piece.text}}
        return _choice(sequence, content, logprobs=logprobs, reason=piece.finish_reason)

    def whole(self, sequence: Sequence, pieces: list[Piece]) -> dict[str, Any]:
        """The choice of an answer that is not streamed."""
        text = "".join(piece.text for piece in pieces)
        message = {"role": "assistant", "content": text, "refusal": None}
        logprobs = self._logprobs(sequence, pieces)
        reason = pieces[-1].finish_reason
        return _choice(sequence, {"message": message}, logprobs=logprobs, reason=reason)

    def _logprobs(self, sequence: Sequence, pieces: list[Piece]) -> dict[str, Any] | None:
        if sequence.params.logprobs is None:
            return None
        tokens = [piece.token for piece in pieces if piece.token]
        return {"content": [self._token(token) for token in tokens], "refusal": None}

    def _token(self, token: Token) -> dict[str, Any]:
        top = [self._entry(other, logprob) for other, logprob in token.top]
        return {**self._entry(token.id, token.logprob), "top_logprobs": top}

    def _entry(self, token: int, logprob: float | None) -> dict[str, Any]:
        return {
            "token": self._tokenizer.token(token),
            "logprob": logprob,
            "bytes": self._tokenizer.token_bytes(token),
        }


def _choice(
    sequence: Sequence, content: dict[str, Any], *, logprobs: Any, reason: str | None
) -> dict[str, Any]:
    return {
        "index": sequence.index,
        **content,
        "logprobs": logprobs,
        "finish_reason": reason,
    }
