"""Passes a client's trace context on to engines (https://www.w3.org/TR/trace-context/)."""

import re
from collections.abc import Mapping

_PARENT = re.compile(rb"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_STATE = re.compile(rb"[\x20-\x7e]{1,512}")


def trace_headers(headers: Mapping[bytes, bytes]) -> bytes:
    """Returns the lines of a request's head that continue a trace; empty without a valid one."""
    parent, state = headers.get(b"traceparent", b""), headers.get(b"tracestate", b"")
    if not _PARENT.fullmatch(parent):
        return b""
    line = b"traceparent: %b\r\n" % parent
    return line + b"tracestate: %b\r\n" % state if _STATE.fullmatch(state) else line
