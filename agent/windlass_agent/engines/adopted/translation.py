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
from windlass.inference_api.requests import MAX_CHOICES

VLLM = "vllm"
# Of text, for what a stack does not count.
BYTES_PER_TOKEN = 4
# The gateway's affair; a stack of OpenAI's dialect may refuse what it does not know.
_OURS = ("cache_salt", "priority", "service_tier")
_LAST_USAGE = Raw(b'{"include_usage":true}')
_NULL = (b"", b"null")
# Of a stack's reasons, those that are ours too.
_CODES = {"context_length_exceeded": "context_length_exceeded"}
# Where FastAPI found a field.
_PLACES = ("body", "query", "path")
# Of a chunk, beside what it says.
_HEAD = ("id", "object", "created", "model")
_fields = msgspec.json.Decoder(dict[str, Raw])
_encode = msgspec.json.encode


class StackFailed(Exception):
    """A stack said within a stream that it failed; `said` is for the operator's log."""

    def __init__(self, said: bytes):
        super().__init__("the serving stack failed")
        self.said = said


class _Written(Struct):
    """Text of a choice or of its delta."""

    content: Any = None
    reasoning: Any = None
    reasoning_content: Any = None
    refusal: Any = None
    tool_calls: Any = None

    @property
    def parts(self) -> tuple[Any, ...]:
        return msgspec.structs.astuple(self)


class _StackChoice(Struct):
    delta: _Written | None = None
    message: _Written | None = None
    text: Any = None
    index: int = 0


class _StackUsage(Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None

    @property
    def counts(self) -> bool:
        """True where it tells what was read or written."""
        return self.prompt_tokens is not None or self.completion_tokens is not None


_choices = msgspec.json.Decoder(list[_StackChoice])
_usage = msgspec.json.Decoder(_StackUsage | None)


@dataclass(frozen=True, kw_only=True)
class ModelNames:
    """A model's public name, and what its stack calls it."""

    ours: str
    theirs: str
    key: str = field(default="", repr=False)

    def log(self, content: bytes) -> str:
        """Text of the stack for the operator's log, without its key."""
        return self._without_key(content[:4000].decode(errors="replace"))

    def _without_key(self, text: str) -> str:
        return text.replace(self.key, "***") if self.key else text

    def in_text(self, text: str) -> str:
        """Text of the stack with the public name, and without its key."""
        text = self._without_key(text)
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
    # By each answer's number, and of all.
    _tokens: dict[int, int] = field(default_factory=dict, init=False)
    _all_tokens: int = field(default=0, init=False)
    # The stack has told its own numbers.
    _is_counted: bool = field(default=False, init=False)
    _last: dict[str, Raw] = field(default_factory=dict, init=False)

    def whole(self, content: bytes) -> bytes:
        """An answer that is not streamed; raises ApiError where it is no JSON object."""
        fields = _object(content)
        usage = _usage_of(fields.get("usage"))
        if not usage.counts and usage.total_tokens and "choices" not in fields:
            # Ranks of many stacks: nothing is written, so all was read.
            read = {"prompt_tokens": usage.total_tokens, "total_tokens": usage.total_tokens}
            fields["usage"] = Raw(_encode(read))
        elif not usage.counts:
            self._count(fields.get("choices"))
            fields["usage"] = self._estimate(self._all_tokens)
        return _encode(self._named(fields))

    def chunk(self, data: bytes) -> bytes:
        """The data of one event, with usage last; raises StackFailed for an error of the stack."""
        fields = _object(data)
        if bytes(fields.get("error", b"")) not in _NULL:
            raise StackFailed(data)
        usage = fields.pop("usage", Raw(b"null"))
        number = self._count(fields.get("choices"))
        if _usage_of(usage).counts:
            self._is_counted = True
        elif not self._is_counted:
            tokens = self._all_tokens
            if self.dialect == VLLM and number is not None:
                # Its numbers in a chunk are of the chunk's own answer.
                tokens = self._tokens[number]
            usage = self._estimate(tokens)
        self._last = {name: fields[name] for name in _HEAD if name in fields}
        return _encode(self._named(fields) | {"usage": usage})

    def closing(self) -> bytes:
        """The data of a last event with the estimate; empty where the stack has counted."""
        if self._is_counted or not self._last:
            return b""
        estimate = {"choices": Raw(b"[]"), "usage": self._estimate(self._all_tokens)}
        return _encode(self._named(self._last) | estimate)

    def _named(self, fields: dict[str, Raw]) -> dict[str, Raw]:
        if "model" in fields:
            fields["model"] = Raw(_encode(self.names.ours))
        return fields

    def _count(self, choices: Raw | None) -> int | None:
        """Adds the tokens of what is written, at least one for each answer that has something.

        Returns the number of the first answer; numbers that no request can have are the first.
        """
        try:
            found = _choices.decode(choices) if choices else []
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        numbers = [one.index if 0 <= one.index < MAX_CHOICES else 0 for one in found]
        for number, one in zip(numbers, found, strict=True):
            said = one.delta or one.message
            parts = said.parts if said else (one.text,)
            written = sum(len(_encode(part)) for part in parts if part)
            new = max(1, written // BYTES_PER_TOKEN) if written else 0
            self._tokens[number] = self._tokens.get(number, 0) + new
            self._all_tokens += new
        return numbers[0] if numbers else None

    def _estimate(self, completion: int) -> Raw:
        prompt = max(1, self.body_bytes // BYTES_PER_TOKEN)
        usage = {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "estimated": True,
        }
        return Raw(_encode(usage))


def refusal(content: bytes, status: int, names: ModelNames) -> ApiError:
    """A refusal of the stack, in OpenAI's shape and with the public name."""
    if status >= 500 and status not in (500, 501):
        return ApiError("The serving stack is not available.", status=503, code="stack_unavailable")
    if status == 500:
        return ApiError("The serving stack failed.", status=500, code="engine_error")
    try:
        document = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        document = None
    error = document.get("error", document) if isinstance(document, dict) else {}
    error = error if isinstance(error, dict) else {"message": error}
    if status == 404:
        return _missing(document, names)
    said, param = error.get("message") or error.get("detail"), error.get("param")
    if isinstance(said, list) and said and isinstance(said[0], dict):
        # FastAPI's own form: a list of errors.
        problem = said[0]
        said, param = problem.get("msg"), _field(problem.get("loc"))
    return ApiError(
        names.in_text(str(said or "The serving stack refused the request.")[:4000]),
        status=status,
        param=str(param)[:200] if param else None,
        code=_CODES.get(str(error.get("code"))),
    )


def _missing(document: Any, names: ModelNames) -> ApiError:
    """The error for a 404: the model is gone, the route is unknown, or a proxy has no stack."""
    if not isinstance(document, dict):
        return ApiError("The serving stack is not available.", status=503, code="stack_unavailable")
    said = msgspec.json.encode(document).decode()
    if names.theirs in said or "model_not_found" in said:
        # It was there when the engine was declared ready.
        return ApiError("The serving stack lost the model.", status=503, code="stack_lost_model")
    return ApiError("The serving stack does not answer such requests.", status=400)


def _field(place: Any) -> str:
    """The name of a field by FastAPI's list of its parts."""
    parts = [str(part) for part in place] if isinstance(place, list) else []
    return ".".join(parts[1:] if parts[:1] and parts[0] in _PLACES else parts)


def _usage_of(usage: Raw | None) -> _StackUsage:
    """The numbers of tokens that a stack tells; none of what is no usage."""
    try:
        found = _usage.decode(usage) if usage else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = None
    return found or _StackUsage()


def _object(content: bytes) -> dict[str, Raw]:
    try:
        return _fields.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError(
            "The serving stack answered with what is no JSON object.",
            status=502,
            code="engine_failed",
        ) from error
