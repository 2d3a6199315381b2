"""Translation between requests here and at a serving stack: names, usage, and our own fields.

A stack speaks OpenAI's dialect, or vLLM's, which has usage in every chunk and a salt. What a
stack does not count is estimated, and says so.
"""

import re
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import Raw, Struct

from windlass.inference_api.errors import ApiError, bad_value, model_not_found

VLLM = "vllm"
# Of text, for what a stack does not count.
BYTES_PER_TOKEN = 4
# Written by the gateway; a stack of OpenAI's dialect may refuse what it does not know.
_OURS = ("cache_salt", "priority")
_LAST_USAGE = Raw(b'{"include_usage":true}')
_NULL = (b"", b"null")
# Of a stack's reasons, those that are ours too.
_CODES = {"context_length_exceeded": "context_length_exceeded"}
_fields = msgspec.json.Decoder(dict[str, Raw])
_encode = msgspec.json.encode


class _Written(Struct):
    """Text of a choice or of its delta."""

    content: Any = None
    reasoning_content: Any = None
    tool_calls: Any = None


class _StackChoice(Struct):
    delta: _Written | None = None
    message: _Written | None = None
    text: Any = None


_choices = msgspec.json.Decoder(list[_StackChoice])


@dataclass(frozen=True, kw_only=True)
class ModelNames:
    """A model's public name, and what its stack calls it."""

    ours: str
    theirs: str

    def in_text(self, text: str) -> str:
        """Text of the stack with the public name."""
        return re.sub(rf"(?<![\w/.:-]){re.escape(self.theirs)}(?![\w/:-])", self.ours, text)


def body_for_stack(body: bytes, names: ModelNames, *, dialect: str) -> bytes:
    """The body of a request as a stack gets it; raises ApiError for another model's."""
    try:
        fields = _fields.decode(body)
        asked = msgspec.json.decode(fields.get("model", Raw(b"null")))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise bad_value("The body is no JSON object.", "body") from error
    if asked != names.ours:
        raise model_not_found(str(asked)[:256])
    fields["model"] = Raw(_encode(names.theirs))
    if dialect != VLLM:
        for name in _OURS:
            fields.pop(name, None)
        if "stream_options" in fields:
            fields["stream_options"] = _LAST_USAGE
    return _encode(fields)


@dataclass(kw_only=True)
class StackAnswer:
    """An answer on its way to the client, with an estimate of what its stack does not count."""

    names: ModelNames
    dialect: str
    body_bytes: int
    """Of the request, which has the prompt."""
    _tokens: int = field(default=0, init=False)

    def whole(self, content: bytes) -> bytes:
        """An answer that is not streamed; raises ApiError where it is no JSON object."""
        fields = _object(content)
        if bytes(fields.get("usage", b"")) in _NULL:
            self._count(fields.get("choices"), by_bytes=True)
            fields["usage"] = self._estimate()
        return _encode(self._named(fields))

    def chunk(self, data: bytes) -> bytes:
        """The data of one event, with usage last; raises ApiError for an error of the stack."""
        fields = _object(data)
        if "error" in fields:
            raise refusal(data, 500, self.names)
        if self.dialect == VLLM:
            return _encode(self._named(fields))
        usage = fields.pop("usage", Raw(b"null"))
        self._count(fields.get("choices"))
        if bytes(usage) in _NULL:
            usage = self._estimate()
        return _encode(self._named(fields) | {"usage": usage})

    def _named(self, fields: dict[str, Raw]) -> dict[str, Raw]:
        if "model" in fields:
            fields["model"] = Raw(_encode(self.names.ours))
        return fields

    def _count(self, choices: Raw | None, *, by_bytes: bool = False) -> None:
        """Adds a token for each choice that has text, or those of the text."""
        try:
            found = _choices.decode(choices) if choices else []
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return
        for one in found:
            said = one.delta or one.message
            parts = (said.content, said.reasoning_content, said.tool_calls) if said else (one.text,)
            written = [part for part in parts if part]
            if written:
                size = len(_encode(written)) if by_bytes else BYTES_PER_TOKEN
                self._tokens += max(1, size // BYTES_PER_TOKEN)

    def _estimate(self) -> Raw:
        prompt = max(1, self.body_bytes // BYTES_PER_TOKEN)
        usage = {
            "prompt_tokens": prompt,
            "completion_tokens": self._tokens,
            "total_tokens": prompt + self._tokens,
            "estimated": True,
        }
        return Raw(_encode(usage))


def refusal(content: bytes, status: int, names: ModelNames) -> ApiError:
    """A refusal of the stack, in OpenAI's shape and with the public name."""
    if status == 404:
        # It was there when the engine was declared ready.
        return ApiError("The serving stack lost the model.", status=503, code="stack_lost_model")
    if status in (502, 503, 504):
        return ApiError("The serving stack is not available.", status=503, code="stack_unavailable")
    try:
        document = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        document = None
    error = document.get("error", document) if isinstance(document, dict) else {}
    error = error if isinstance(error, dict) else {"message": error}
    said = error.get("message") or error.get("detail") or "The serving stack refused the request."
    param = error.get("param")
    return ApiError(
        names.in_text(str(said)[:4000]),
        status=status,
        param=str(param)[:200] if param else None,
        code=_CODES.get(str(error.get("code"))),
    )


def _object(content: bytes) -> dict[str, Raw]:
    try:
        return _fields.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError(
            "The serving stack answered with what is no JSON object.",
            status=502,
            code="engine_failed",
        ) from error
