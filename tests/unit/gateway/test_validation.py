"""Validation errors of a body are plain sentences, whatever pydantic calls them."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, ValidationError

from windlass.gateway.validation import validation_error


class Body(BaseModel, extra="forbid"):
    """One field of each kind."""

    name: Annotated[str, Field(min_length=1, max_length=5)]
    seed: int | None = Field(None, ge=0, le=100)
    kind: Literal["a", "b"] = "a"
    rounds: int | Literal["auto"] = "auto"
    tags: list[str] = Field([], max_length=2)
    rate: Annotated[float, Field(gt=0)] = 1


@pytest.mark.parametrize(
    ("body", "message", "code"),
    [
        ({}, "Missing required parameter: 'name'.", "missing_required_parameter"),
        ({"zz": 0, "name": "a"}, "Unknown parameter: 'zz'.", "unknown_parameter"),
        ({"name": 3}, "Invalid value for 'name': expected a string, got an integer.", ""),
        ({"name": "abcdef"}, "Invalid value for 'name': expected a string of at most 5 characters.",
         ""),
        ({"seed": -1}, "Invalid value for 'seed': expected a number of at least 0.", ""),
        ({"seed": "x"}, "Invalid value for 'seed': expected an integer, got a string.", ""),
        ({"kind": "c"}, "Invalid value for 'kind': expected 'a' or 'b'.", ""),
        ({"rounds": []}, "Invalid value for 'rounds': expected an integer or 'auto', got an array.",
         ""),
        ({"tags": ["a", 3]}, "Invalid value for 'tags.1': expected a string, got an integer.", ""),
        ({"tags": ["a"] * 3}, "Invalid value for 'tags': expected at most 2 items.", ""),
        ({"rate": 0}, "Invalid value for 'rate': expected a number above 0.0.", ""),
        ([], "Invalid value for 'body': expected an object, got an array.", ""),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)  # fmt: skip
def test_the_field_and_what_was_expected(body: Any, message: str, code: str) -> None:
    whole = {"name": "a", **body} if isinstance(body, dict) and body else body
    with pytest.raises(ValidationError) as raised:
        Body.model_validate(whole)
    errors = [{**error, "loc": ("body", *error["loc"])} for error in raised.value.errors()]
    answer = validation_error(errors, whole)
    assert (answer.status, str(answer)) == (400, message)
    assert answer.code == (code or "invalid_value")
