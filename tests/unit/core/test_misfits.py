"""What is wrong with a document: the choices are named, and what was probably meant."""

from typing import Any

import pytest

from windlass import graders
from windlass.backends import methods
from windlass.backends.backend import InvalidConfig
from windlass.core import misfits
from windlass.core.suggestions import closest, did_you_mean

CHECK = {"type": "string_check", "name": "x", "input": "a", "reference": "b", "operation": "eq"}
OPERATIONS = "is not one of eq, ilike, like, ne"


@pytest.mark.parametrize(
    ("document", "field", "words"),
    [
        (CHECK | {"operation": "contains"}, "grader.operation", f"'contains' {OPERATIONS}"),
        (
            CHECK | {"operation": "ilik"},
            "grader.operation",
            f"'ilik' {OPERATIONS} (did you mean 'ilike'?)",
        ),
        (
            CHECK | {"type": "strng_check"},
            "grader.type",
            "'strng_check' is not one of string_check, text_similarity, score_model, label_model, "
            "python, multi (did you mean 'string_check'?)",
        ),
        (
            {
                "type": "multi",
                "name": "x",
                "calculate_output": "a",
                "graders": {"a": CHECK | {"operation": "is"}},
            },
            "grader.graders[...].operation",
            f"'is' {OPERATIONS}",
        ),
    ],
)
def test_a_wrong_value_is_told_the_choices(
    document: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(graders.InvalidGrader) as refused:
        graders.parse(document)
    assert refused.value.field == field
    assert misfits.words(refused.value.message) == words


def test_a_method_is_told_the_choices() -> None:
    with pytest.raises(InvalidConfig, match=r"supervised, dpo, .* \(did you mean 'supervised'\?\)"):
        methods.choose("supervisd", None)
    with pytest.raises(InvalidConfig, match=r"kto, orpo, .* \(did you mean 'distillation'\?\)"):
        methods.choose("", "distilation")


def test_only_what_is_much_like_it_was_meant() -> None:
    known = ["tiny-llama", "llama-3.2-1b", "qwen2.5"]
    assert closest("Tiny Lama", known) == "tiny-llama"
    assert closest("llama-3.2-1B", known) == "llama-3.2-1b"
    assert closest("mistral", known) == ""
    assert closest("x", []) == ""
    assert did_you_mean("tinyllama", known) == " Did you mean 'tiny-llama'?"
