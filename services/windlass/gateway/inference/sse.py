"""Extraction of the usage from a stream of server-sent events, however it is split."""

import re
from enum import Enum

import msgspec

from windlass.gateway.inference.refusals import stream_error
from windlass.gateway.usage.token_usage import (
    UNREADABLE,
    TokenUsage,
    added,
    chunk_usage,
    read_usage,
)
from windlass.inference_api.requests import MAX_CHOICES

_USAGE = b'"usage"'
# No text of an answer has it: quotes within a string are escaped.
_ERROR = b'"error"'
_NAMED = b"event:"
# How a chunk of an answer begins; what begins otherwise may be an error.
_CHUNK = b'data: {"id":'
_FLAT = b',"usage":{'
# The value of a last key and the end of the object that holds it. Braces close
# exactly that object, so the key is the chunk's own and not one further inside.
_LAST_KEY = re.compile(rb'"usage"\s*:\s*(\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}|null)\s*\}\s*')
_NO_CHOICES = re.compile(rb'"choices"\s*:\s*\[\s*\]')
_EVENT_ERROR = re.compile(rb"^event: ?error *$", re.MULTILINE)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
# Of one event: the log-probabilities of a long prompt are several million bytes.
EVENT_BYTES = 16 * 2**20


class EventTooLong(Exception):
    """An engine sends an event that does not end."""


def _at_flat_usage(data: bytes) -> int:
    """The index of the usage in a chunk as most engines write it; -1 elsewhere.

    One whole event of one line and compact JSON, with choices, whose last key is a usage
    without an object inside. Anything else takes the general way.
    """
    if not data.endswith(b"}}\n\n") or data.count(b"\n") != 2 or not data.startswith(b"data:"):
        return -1
    at = data.rfind(_FLAT)
    if at < 0 or data.count(b"{", at) != 1 or data.count(b"}", at) != 2:
        return -1
    return at if data.find(b'"choices":[{', 0, at) > 0 else -1


def _data(event: bytes) -> bytes:
    lines = event.split(b"\n")
    return b"\n".join([line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:")])


def _failure(event: bytes) -> bytes:
    """The data of an event that is an error in any of the forms that engines use, or nothing."""
    named = _EVENT_ERROR.search(event) is not None
    if not named and _ERROR not in event:
        return b""
    data = _data(event).replace(b"\n", b" ")
    try:
        fields = _fields.decode(data)
    except UNREADABLE:
        return data if named else b""
    failed = named or "error" in fields or fields.get("object") == msgspec.Raw(_ERROR)
    return data if failed else b""


class Show(Enum):
    """Usage that the client asked to see."""

    NOTHING = 1
    LAST = 2
    ALL = 3


class UsageFilter:
    """Turns the engine's bytes into the client's, and remembers the last usage.

    Events pass in their own bytes, but for line ends, which become LF, and for
    the usage that the client did not ask for. With `choices`, the number of answers
    to each prompt, usage in a chunk is that of the chunk's own answer alone.
    """

    __slots__ = ("_carry", "_choices", "_each", "_last", "_rest", "_show")

    def __init__(self, show: Show, *, choices: int = 0):
        self._show = show
        self._choices = choices
        self._each: dict[int, TokenUsage] = {}
        # Grows in place, since an event may come in many parts.
        self._rest = bytearray()
        self._carry = b""
        self._last = b""

    @property
    def usage(self) -> TokenUsage:
        """The counts of the last chunk that had some, or of all answers together."""
        if self._each:
            # Answers to one prompt report the same prompt.
            prompts = {at // self._choices: one for at, one in self._each.items()}
            return added([*prompts.values()], [*self._each.values()])
        return read_usage(self._last)

    def feed(self, data: bytes) -> bytes:
        """Takes bytes of the engine; returns the complete events for the client.

        Raises EventTooLong.
        """
        if b"\r" in data or self._carry:
            data = self._with_line_feeds(data)
        if rest := self._rest:
            # The end may have begun in the part before.
            at = max(0, len(rest) - 1)
            rest += data
            if rest.find(b"\n\n", at) < 0:
                return self._incomplete()
            data, self._rest = bytes(rest), bytearray()
        if (at := _at_flat_usage(data)) > 0:
            return self._flat(data, at)
        end = data.rfind(b"\n\n")
        self._rest += data[end + 2 :] if end >= 0 else data
        if end < 0:
            return self._incomplete()
        if _USAGE not in data and _ERROR not in data and _NAMED not in data:
            return data[: end + 2]
        return b"".join([self._event(event) for event in data[:end].split(b"\n\n")])

    def _flat(self, data: bytes, at: int) -> bytes:
        self._count(data[at + len(_FLAT) - 1 : -3], data)
        if self._show is Show.ALL:
            return data
        return data[:at] + (b',"usage":null}\n\n' if self._show is Show.LAST else b"}\n\n")

    def _incomplete(self) -> bytes:
        if len(self._rest) > EVENT_BYTES:
            raise EventTooLong
        return b""

    def finish(self) -> bytes:
        """Returns the remaining bytes of a stream that ended within an event."""
        rest, self._rest = bytes(self._rest), bytearray()
        return self._event(rest) if rest.strip(b"\n") else b""

    def _with_line_feeds(self, data: bytes) -> bytes:
        data = self._carry + data
        self._carry = b"\r" if data.endswith(b"\r") else b""
        if self._carry:
            data = data[:-1]
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _count(self, usage: bytes, line: bytes) -> None:
        """Remembers the usage of a chunk; that without an answer is of all of them."""
        self._last = usage
        if not self._choices:
            return
        if (read := chunk_usage(line[5:])) is None:
            return
        index, counted = read
        if index is None:
            self._each.clear()
        elif 0 <= index < MAX_CHOICES:
            self._each[index] = counted

    def _event(self, event: bytes) -> bytes:
        if not event.startswith(_CHUNK) and (failure := _failure(event)):
            return b"data: " + stream_error(failure) + b"\n\n"
        if _USAGE not in event:
            return event + b"\n\n"
        if event.startswith(b"data:") and b"\n" not in event:
            shown = self._payload(event)
            return shown + b"\n\n" if shown is not None else b""
        others = [line for line in event.split(b"\n") if not line.startswith(b"data:")]
        data = _data(event)
        shown = self._payload(b"data: " + data.replace(b"\n", b" "))
        return b"\n".join([*others, shown]) + b"\n\n" if shown is not None else b""

    def _payload(self, line: bytes) -> bytes | None:
        """The data line as the client may see it; None to leave it out."""
        at = line.rfind(_USAGE)
        found = _LAST_KEY.fullmatch(line, at)
        head = line[:at].rstrip()
        if found is None or not head.endswith(b",") or _NO_CHOICES.search(line):
            return self._parsed(line)
        if found[1] == b"null":
            return line if self._show is not Show.NOTHING else head[:-1] + b"}"
        self._count(found[1], line)
        if self._show is Show.ALL:
            return line
        if self._show is Show.LAST:
            return head + b'"usage":null}'
        return head[:-1] + b"}"

    def _parsed(self, line: bytes) -> bytes | None:
        """The same for a chunk of any shape, by parsing its outer object."""
        try:
            fields = _fields.decode(line[5:])
        except UNREADABLE:
            return line
        usage = bytes(fields.get("usage", b""))
        if not usage:
            return line
        counted = usage != b"null"
        if counted:
            self._count(usage, line)
        choices = bytes(fields.get("choices", b"absent"))
        closing = counted and not choices.strip(b"[] \t")
        if self._show is Show.ALL or (self._show is Show.LAST and (closing or not counted)):
            return line
        if closing:
            return None
        if self._show is Show.LAST:
            fields["usage"] = msgspec.Raw(b"null")
        else:
            del fields["usage"]
        return b"data: " + msgspec.json.encode(fields)
