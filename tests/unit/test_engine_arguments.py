"""The page on arguments of engines is what the types say."""

import pytest
from pydantic import ValidationError
from tools import generate_engine_arguments_reference as generator

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.engine_arguments import (
    TAKEN,
    EngineArguments,
    from_message,
    not_taken,
    stored,
    to_message,
)


def test_the_page_is_current() -> None:
    assert generator.TARGET.read_text() == generator.reference(), "run `make docs`"


def test_every_argument_travels_and_some_engine_takes_it() -> None:
    fields = {field.name for field in pb.EngineArguments.DESCRIPTOR.fields}
    assert fields == set(EngineArguments.model_fields)
    assert fields == frozenset().union(*TAKEN.values())


def test_a_message_out_of_bounds_is_none() -> None:
    arguments = EngineArguments(context_length=4096, memory_fraction=0.5, eager=False)
    assert from_message(to_message(arguments)) == arguments
    for wrong in ({"context_length": 1}, {"dtype": "int4"}, {"tool_parser": "../x"}):
        with pytest.raises(ValidationError):
            from_message(pb.EngineArguments(**wrong))


def test_a_row_of_a_newer_release_can_be_read() -> None:
    found = stored({"context_length": 4096, "dtype": "int4", "of_tomorrow": 1})
    assert found == EngineArguments(context_length=4096)


def test_an_engine_takes_no_argument_of_others() -> None:
    arguments = EngineArguments(context_length=4096, tool_parser="hermes")
    assert not_taken("vllm", arguments) is None
    assert not_taken("builtin", arguments) == "tool_parser"
    assert not_taken("unheard-of", arguments) == "context_length"
