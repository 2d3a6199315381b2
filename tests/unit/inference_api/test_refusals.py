"""Bodies of inference requests that are refused, in words."""

from typing import Any

import msgspec
import pytest

from windlass.inference_api.errors import ApiError
from windlass.inference_api.requests import ChatRequest, parse

HELLO = [{"role": "user", "content": "hello"}]


@pytest.mark.parametrize(
    ("field", "param", "said"),
    [
        (
            {"response_format": {"type": "jsn"}},
            "response_format.type",
            "'jsn' is not one of text, json_object, json_schema",
        ),
        (
            {"verbosity": "mediun"},
            "verbosity",
            "'mediun' is not one of high, low, medium (did you mean 'medium'?)",
        ),
        ({"temperature": "hot"}, "temperature", "expected a number or null, got a string"),
        ({"n": 1.5}, "n", "expected an integer or null, got a number"),
    ],
)
def test_a_refusal_names_the_choices(field: dict[str, Any], param: str, said: str) -> None:
    body = msgspec.json.encode({"model": "m", "messages": HELLO, **field})
    with pytest.raises(ApiError) as refused:
        parse(ChatRequest, body)
    assert refused.value.message == f"Invalid value for '{param}': {said}."
    assert (refused.value.param, refused.value.status) == (param, 400)
