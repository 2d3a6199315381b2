"""Extraction of the usage from a stream of server-sent events, however it is split."""

import re
from enum import Enum

import msgspec

from windlass.gateway.inference.refusals import stream_error

_USAGE = b'"usage"'
# No text of an answer has it: quotes within a string are escaped.
_ERROR = b'"error"'
_FAILED = b'data: {"error"'
_FLAT = b',"usage":{'
# The value of a last key and the end of the object that holds it. Braces close
# exactly that object, so the key is the chunk's own and not one further inside.
_LAST_KEY = re.compile(rb'"usage"\s*:\s*(\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}|null)\s*\}\s*')
_NO_CHOICES = re.compile(rb'"choices"\s*:\s*\[\s*\]')
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


class TokenUsage(msgspec.Struct):
    """Token counts of a request."""

    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Reported(msgspec.Struct):
    """Token counts as engines report them; vLLM's may be null."""

    prompt_tokens: int | None = 0
    completion_tokens: int | None = 0

    def counts(self) -> TokenUsage:
        return TokenUsage(self.prompt_tokens or 0, self.completion_tokens or 0)


class _Whole(msgspec.Struct):
    usage: _Reported | None = None


_usage = msgspec.json.Decoder(_Reported)
_whole = msgspec.json.Decoder(_Whole)


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


def usage_of(body: bytes) -> TokenUsage:
    """The usage of a whole response; zeros when it has none."""
    try:
        usage = _whole.decode(body).usage
        return usage.counts() if usage else TokenUsage()
    except (msgspec.DecodeError, UnicodeDecodeError):
        return TokenUsage()


class Show(Enum):
    """Usage that the client asked to see."""

    NOTHING = 1
    LAST = 2
    ALL = 3


class UsageFilter:
    """Turns the engine's bytes into the client's, and remembers the last usage.

    Events pass in their own bytes, but for line ends, which become LF, and for
    the usage that the client did not ask for.
    """

    __slots__ = ("_carry", "_last", "_rest", "_show")

    def __init__(self, show: Show):
        self._show = show
        self._rest = b""
        self._carry = b""
        self._last = b""

    @property
    def usage(self) -> TokenUsage:
        """The counts of the last chunk that had some."""
        try:
            return _usage.decode(self._last).counts() if self._last else TokenUsage()
        except (msgspec.DecodeError, UnicodeDecodeError):
            return TokenUsage()

    def feed(self, data: bytes) -> bytes:
        """Takes bytes of the engine; returns the complete events for the client."""
        if b"\r" in data or self._carry:
            data = self._with_line_feeds(data)
        if self._rest:
            data = self._rest + data
        if (at := _at_flat_usage(data)) > 0:
            return self._flat(data, at)
        end = data.rfind(b"\n\n")
        if end < 0:
            self._rest = data
            return b""
        self._rest = data[end + 2 :]
        if _USAGE not in data and _ERROR not in data:
            return data[: end + 2]
        return b"".join([self._event(event) for event in data[:end].split(b"\n\n")])

    def _flat(self, data: bytes, at: int) -> bytes:
        self._rest = b""
        self._last = data[at + len(_FLAT) - 1 : -3]
        if self._show is Show.ALL:
            return data
        return data[:at] + (b',"usage":null}\n\n' if self._show is Show.LAST else b"}\n\n")

    def finish(self) -> bytes:
        """Returns the remaining bytes of a stream that ended within an event."""
        rest, self._rest = self._rest, b""
        return self._event(rest) if rest.strip(b"\n") else b""

    def _with_line_feeds(self, data: bytes) -> bytes:
        data = self._carry + data
        self._carry = b"\r" if data.endswith(b"\r") else b""
        if self._carry:
            data = data[:-1]
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _event(self, event: bytes) -> bytes:
        if event.startswith(_FAILED):
            return b"data: " + stream_error(event[6:]) + b"\n\n"
        if _USAGE not in event:
            return event + b"\n\n"
        if event.startswith(b"data:") and b"\n" not in event:
            shown = self._payload(event)
            return shown + b"\n\n" if shown is not None else b""
        lines = event.split(b"\n")
        others = [line for line in lines if not line.startswith(b"data:")]
        data = b"\n".join(
            [line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:")]
        )
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
        self._last = found[1]
        if self._show is Show.ALL:
            return line
        if self._show is Show.LAST:
            return head + b'"usage":null}'
        return head[:-1] + b"}"

    def _parsed(self, line: bytes) -> bytes | None:
        """The same for a chunk of any shape, by parsing its outer object."""
        try:
            fields = _fields.decode(line[5:])
        except (msgspec.DecodeError, UnicodeDecodeError):
            return line
        usage = bytes(fields.get("usage", b""))
        if not usage:
            return line
        counted = usage != b"null"
        if counted:
            self._last = usage
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
