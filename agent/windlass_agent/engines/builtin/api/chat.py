"""POST /v1/chat/completions."""

from collections.abc import Callable
from typing import Any

from aiohttp import web

from windlass.core.telemetry import request_id
from windlass.inference_api.errors import bad_value
from windlass.inference_api.messages import conversation
from windlass.inference_api.requests import ChatRequest, check_chat, parse
from windlass_agent.engines.builtin.api.answer import Answer
from windlass_agent.engines.builtin.api.held import held
from windlass_agent.engines.builtin.api.messages import renderable
from windlass_agent.engines.builtin.generation.sequence import Sequence, StepOutput, Token
from windlass_agent.engines.builtin.service import EngineService
from windlass_agent.engines.builtin.text.tokenizer import ModelTokenizer
from windlass_agent.engines.builtin.tools.parsing import CallDelta, Event, ToolCallParser


async def chat_completions(request: web.Request, service: EngineService) -> web.StreamResponse:
    """Answers a conversation."""
    body = parse(ChatRequest, await request.read())
    check_chat(body)
    with service.use(body.model, "generate") as adapter:
        messages = await renderable(conversation(body.messages), service.tools)
        holding = await held(service, body)
        prompt = await service.model.tokenizer.chat(
            messages, tools=holding.tools, options=_template_options(body)
        )
        wanted = body.max_completion_tokens or body.max_tokens
        room = service.room(prompt, wanted, param="messages")
        logprobs = (body.top_logprobs or 0) if body.logprobs else None
        work = [
            (prompt, body.sampling(max_tokens=room, logprobs=logprobs, choice=choice))
            for choice in range(body.choices())
        ]
        pieces = service.start(
            work,
            adapter,
            request_ids=[f"chatcmpl-{request_id.get()}"] * len(work),
            constraint=holding.constraint,
            decode=holding.decode,
        )
        shape = ChatShape(service.model.tokenizer, parser=holding.parser)
        answer = Answer(shape, body.model, prompt_tokens=len(prompt), pieces=pieces)
        if body.stream:
            return await answer.stream(request, body.stream_options)
        return await answer.whole()


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

    def __init__(
        self, tokenizer: ModelTokenizer, *, parser: Callable[[], ToolCallParser] | None = None
    ):
        self._tokenizer = tokenizer
        self._parser = parser
        self._parsers: dict[int, ToolCallParser] = {}

    def opening(self, sequence: Sequence) -> list[dict[str, Any]]:
        """The chunk with the role."""
        delta = {"role": "assistant", "content": ""}
        return [_choice(sequence, {"delta": delta}, logprobs=None, reason=None)]

    def delta(self, sequence: Sequence, piece: StepOutput) -> dict[str, Any]:
        """The choice of a chunk."""
        events, reason = self._read(sequence, piece)
        calls = [event for event in events if isinstance(event, CallDelta)]
        delta: dict[str, Any] = {}
        if not calls or len(calls) < len(events):
            delta["content"] = "".join(event for event in events if isinstance(event, str))
        if calls:
            delta["tool_calls"] = [_call_delta(call) for call in calls]
        logprobs = self._logprobs(sequence, [piece])
        return _choice(sequence, {"delta": delta}, logprobs=logprobs, reason=reason)

    def whole(self, sequence: Sequence, pieces: list[StepOutput]) -> dict[str, Any]:
        """The choice of an answer that is not streamed."""
        events: list[Event] = []
        reason = None
        for piece in pieces:
            some, reason = self._read(sequence, piece)
            events += some
        text = "".join(event for event in events if isinstance(event, str))
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
        if calls := _whole_calls([event for event in events if isinstance(event, CallDelta)]):
            message |= {"content": text or None, "tool_calls": calls}
        logprobs = self._logprobs(sequence, pieces)
        return _choice(sequence, {"message": message}, logprobs=logprobs, reason=reason)

    def _read(self, sequence: Sequence, piece: StepOutput) -> tuple[list[Event], str | None]:
        """Returns the events of a piece, and its finish reason."""
        reason = piece.finish_reason
        if self._parser is None:
            return [piece.text], reason
        parser = self._parsers.get(sequence.index)
        if parser is None:
            parser = self._parsers[sequence.index] = self._parser()
        events = parser.push(piece.text)
        if reason is not None:
            events += parser.finish()
        return events, "tool_calls" if reason == "stop" and parser.called else reason

    def _logprobs(self, sequence: Sequence, pieces: list[StepOutput]) -> dict[str, Any] | None:
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


def _call_delta(call: CallDelta) -> dict[str, Any]:
    function = {"arguments": call.arguments}
    if call.id is None:
        return {"index": call.index, "function": function}
    return {
        "index": call.index,
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, **function},
    }


def _whole_calls(deltas: list[CallDelta]) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = []
    for delta in deltas:
        if delta.id is not None:
            function = {"name": delta.name, "arguments": ""}
            calls.append({"id": delta.id, "type": "function", "function": function})
        calls[delta.index]["function"]["arguments"] += delta.arguments
    return calls
