"""Schemas of a request are bounded by the work that they make, wherever in it they are."""

import json
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.inference_api.errors import ApiError
from windlass.inference_api.schemas import (
    COUNTED_PROPERTIES,
    DEPTH,
    LIST_LENGTH,
    MOST,
    WORK,
    check_schemas,
    pattern_size,
    read_schema,
)

SCHEMA = st.recursive(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["string", "integer", "object"])},
        optional={
            "minimum": st.integers(),
            "enum": st.lists(st.text(max_size=3), max_size=40),
            "pattern": st.sampled_from(["a", "[a-z]{1,64}", ".{1,99}", "(a{9}){9}"]),
            "maxItems": st.integers(-1, 5000),
        },
    ),
    lambda inner: (
        st.fixed_dictionaries(
            {"properties": st.dictionaries(st.text(max_size=3), inner, max_size=40)},
            optional={"minProperties": st.integers(0, 9)},
        )
        | st.fixed_dictionaries({"anyOf": st.lists(inner, max_size=40)})
        | st.fixed_dictionaries({"$defs": st.dictionaries(st.text(max_size=3), inner)})
    ),
    max_leaves=60,
)


def nodes(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(1 + nodes(one) for one in value.values())
    return sum(1 + nodes(one) for one in value) if isinstance(value, list) else 0


def objects(count: int, schema: Any = None, **more: Any) -> dict[str, Any]:
    return {"properties": {f"p{at}": schema or {} for at in range(count)}, **more}


def refusal(*schemas: Any) -> ApiError | None:
    try:
        check_schemas([(f"tools[{at}]", schema) for at, schema in enumerate(schemas)])
    except ApiError as error:
        return error
    return None


@given(st.lists(SCHEMA, max_size=4), st.integers(1, 200))
def test_no_schemas_pass_that_are_larger_than_the_bound(schemas: list[Any], times: int) -> None:
    schemas = schemas * times
    if refusal(*schemas) is None:
        assert sum(nodes(schema) for schema in schemas) <= WORK


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (objects(COUNTED_PROPERTIES + 1, minProperties=1), "minProperties"),
        (objects(COUNTED_PROPERTIES + 1, maxProperties=9), "maxProperties"),
        ({"default": {"a": objects(2400, minProperties=1200)}}, "minProperties"),
        ({"$defs": {"a": {"items": {"maxItems": MOST + 1}}}}, "maxItems"),
        ({"anyOf": [{"minLength": 1e9}]}, "minLength"),
        ({"enum": ["x"] * (LIST_LENGTH + 1)}, "list"),
        (objects(WORK // 2), "large"),
        (objects(500, {"minimum": 1, "maximum": 9}), "large"),
        (objects(500, {"maxItems": MOST}), "large"),
        (objects(90, {"pattern": "^[a-z]{1,200}$"}), "large"),
        (objects(1, {"pattern": "x" * 600}), "characters"),
        (objects(1, {"pattern": "^((a{0,100}){0,100}){0,100}$"}), "repetitions"),
        (objects(1, {"pattern": "(a{1,900}[^](]){1,900}"}), "class"),
        (objects(1, patternProperties={"^a": {}}), "patternProperties"),
        (json.loads('{"a":' * DEPTH + "{}" + "}" * DEPTH), "nested"),
    ],
)
def test_what_takes_long_is_refused_by_the_name_of_the_field(schema: Any, said: str) -> None:
    error = refusal({}, schema)
    assert error is not None
    assert (error.status, error.param, error.code) == (400, "tools[1]", "invalid_json_schema")
    assert said in error.message


def test_schemas_of_a_request_are_bounded_together() -> None:
    some = objects(1000)
    assert refusal(some, some) is None
    assert refusal(*[some] * 5) is not None


def test_what_people_write_passes() -> None:
    text = {"type": "string", "description": "What to look for.", "maxLength": 4000}
    kinds = {"type": "string", "enum": [f"kind {at}" for at in range(200)]}
    name = {"type": "string", "pattern": "^[a-zA-Z0-9_-]{1,64}$"}
    number = {"type": "integer", "minimum": 1, "maximum": 100}
    rows = {"type": "array", "items": objects(9, text), "minItems": 1, "maxItems": 100}
    tool = objects(6, text, required=["p0"], additionalProperties=False)
    assert refusal(*[tool] * 128) is None
    rich = {"a": kinds, "b": name, "c": number, "d": rows, "properties": {"pattern": text}}
    assert refusal(*[{"type": "object", "properties": rich, "minProperties": 1}] * 9) is None


@pytest.mark.parametrize(
    ("pattern", "size"),
    [
        ("abc", 3),
        ("a{0,100}", 100),
        ("a{7}", 7),
        ("a{ 7 , }", 7),
        ("a{3}b{3}", 6),
        ("(a{10}b){10}", 110),
        ("((a{8}){8}){8}", 512),
        (r"\d{4}-\d{2}", 13),
        ("[a-z]{9}", 18),
        (r"\({9}", 18),
        ("([(]a{9}){9}", 99),
        ("a{9}" + ")", 10),
        ("a{" + "9" * 400 + "}", int("9" * 400)),
    ],
)
def test_a_patterns_repetitions_are_counted_as_written_out(pattern: str, size: int) -> None:
    assert pattern_size(pattern) == size


PARTS = st.recursive(
    st.sampled_from(["a", ".", r"\d", r"\(", "[()]", r"[\]{9}]"]),
    lambda inner: (
        st.builds("({}{})".format, inner, inner)
        | st.builds("({}){{{}}}".format, inner, st.integers(1, 9))
    ),
    max_leaves=8,
)


@given(PARTS)
def test_no_text_that_a_pattern_fixes_is_longer_than_its_size(pattern: str) -> None:
    # All of its parts have one length, so what it matches does too.
    least = import_module("re._parser").parse(pattern).getwidth()[0]  # there is no public parser
    assert least <= pattern_size(pattern)


def test_a_schema_may_be_text() -> None:
    assert read_schema('{"type":"object"}', "x") == {"type": "object"}
    for text in ("{", "[]", "5", "", '"\\ud800"', "[" * 100_000, '{"a":1e999}'):
        with pytest.raises(ApiError) as refused:
            read_schema(text, "structured_outputs.json")
        assert refused.value.param == "structured_outputs.json"
