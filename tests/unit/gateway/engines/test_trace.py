"""Trace context that a gateway passes on: whole and valid, or none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.gateway.inference.engines.trace import trace_headers

PARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize(
    ("sent", "passed"),
    [
        ({b"traceparent": PARENT}, b"traceparent: " + PARENT + b"\r\n"),
        (
            {b"traceparent": PARENT, b"tracestate": b"a=1,b=2"},
            b"traceparent: " + PARENT + b"\r\ntracestate: a=1,b=2\r\n",
        ),
        ({b"traceparent": PARENT, b"tracestate": b"a" * 513}, b"traceparent: " + PARENT + b"\r\n"),
        ({b"traceparent": PARENT.upper()}, b""),
        ({b"tracestate": b"a=1"}, b""),
        ({}, b""),
    ],
)
def test_a_valid_context_is_passed_on(sent: dict[bytes, bytes], passed: bytes) -> None:
    assert trace_headers(sent) == passed


@given(st.binary(max_size=80), st.binary(max_size=80), st.booleans())
def test_no_value_adds_a_line(parent: bytes, state: bytes, valid: bool) -> None:
    headers = {b"traceparent": PARENT if valid else parent, b"tracestate": state}
    lines = trace_headers(headers).split(b"\r\n")
    assert lines.pop() == b""
    assert [line.partition(b":")[0] for line in lines] == [b"traceparent", b"tracestate"][
        : len(lines)
    ]
    assert not any(b"\n" in line or b"\r" in line for line in lines)
