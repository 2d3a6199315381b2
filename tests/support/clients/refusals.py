"""Checks of errors on the wire: OpenAI's error object, complete and nothing else."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

_LACKING = re.compile(r"This needs the permission ([a-z_.]+)\.")
FIELDS = ("message", "type", "param", "code")


@dataclass(frozen=True)
class Refusal:
    """A refused request."""

    status: int
    message: str
    type: str
    param: str | None
    code: str | None


def refusal(answer: httpx.Response, status: int | None = None) -> Refusal:
    """Returns the refusal in a response; fails unless it is exactly one error object."""
    said = f"{answer.request.method} {answer.request.url}: {answer.status_code} {answer.text[:500]}"
    assert status is None or answer.status_code == status, said
    assert answer.status_code >= 400, said
    assert answer.headers["content-type"] == "application/json", said
    assert answer.headers["x-request-id"], said
    body = answer.json()
    assert tuple(body) == ("error",), said
    error = body["error"]
    assert sorted(error) == sorted(FIELDS), said
    assert isinstance(error["message"], str), said
    assert error["message"], said
    assert isinstance(error["type"], str), said
    for name in ("param", "code"):
        assert error[name] is None or isinstance(error[name], str), said
    return Refusal(answer.status_code, **error)


def lacking(code: str | None, message: str) -> str:
    """Returns the permission that a rule misses; empty for any other answer.

    Services refuse for more, such as whose a thing is, in sentences of their own.
    """
    found = _LACKING.fullmatch(message) if code == "insufficient_permissions" else None
    return found[1] if found else ""


def refused(
    kind: type[Exception], call: Callable[..., Any], *values: Any, **fields: Any
) -> Refusal:
    """Returns the refusal of a call of openai-python, which must raise exactly this class."""
    with pytest.raises(kind) as raised:
        call(*values, **fields)
    assert type(raised.value) is kind
    return refusal(raised.value.response)
