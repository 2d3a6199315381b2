"""Checks of errors on the wire: OpenAI's error object, complete and nothing else."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

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


def refused(
    kind: type[Exception], call: Callable[..., Any], *values: Any, **fields: Any
) -> Refusal:
    """Returns the refusal of a call of openai-python, which must raise exactly this class."""
    with pytest.raises(kind) as raised:
        call(*values, **fields)
    assert type(raised.value) is kind
    return refusal(raised.value.response)
