"""The page on arguments of engines is what the types say."""

from typing import Any

import pytest
from pydantic import ValidationError
from tools import generate_engine_arguments_reference as generator

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.inference.v1 import inference_pb2 as pb_inference
from windlass.core.errors import InvalidArgument
from windlass.engine_arguments import (
    TAKEN,
    EngineArguments,
    from_message,
    not_taken,
    require_guesses,
    stored,
    to_message,
)
from windlass.inference.servings.checks import require_guesser
from windlass.modelfiles.vocabulary import BOUNDS


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


def test_drafts_are_for_the_kinds_whose_vocabularies_can_be_compared() -> None:
    assert {kind for kind, taken in TAKEN.items() if "draft_model" in taken} == set(BOUNDS)
    arguments = EngineArguments(draft_model="small", draft_tokens=4)
    assert [not_taken(kind, arguments) for kind in ("builtin", "sglang")] == ["draft_model"] * 2


@pytest.mark.parametrize(
    ("arguments", "nodes", "named"),
    [
        ({"draft_tokens": 3}, 1, "draft_tokens"),
        ({"draft_model": "small", "lookup_tokens": 3}, 1, "lookup_tokens"),
        ({"draft_model": "small", "task": "embed"}, 1, "draft_model"),
        ({"draft_model": "small", "pipeline_parallel": 2}, 1, "draft_model"),
        ({"draft_model": "small"}, 2, "draft_model"),
    ],
)
def test_what_cannot_guess_together_is_refused_by_name(
    arguments: dict[str, Any], nodes: int, named: str
) -> None:
    with pytest.raises(ValueError, match=f"^{named} "):
        require_guesses(EngineArguments(**arguments), nodes)
    with pytest.raises(InvalidArgument) as caught:
        require_guesser(pb_inference.PutServingRequest(nodes=nodes), EngineArguments(**arguments))
    assert caught.value.param == f"arguments.{named}"


def test_one_that_guesses_is_enough() -> None:
    for arguments in ({}, {"lookup_tokens": 3}, {"draft_model": "small", "draft_tokens": 3}):
        require_guesses(EngineArguments(**arguments))
