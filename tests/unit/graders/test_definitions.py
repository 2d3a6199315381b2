"""Validation of graders, and the field that each error names."""

from typing import Any

import pytest

from windlass.graders import InvalidGrader, parse, to_document

CHECK: dict[str, Any] = {
    "type": "string_check",
    "name": "exact",
    "operation": "eq",
    "input": "{{sample.output_text}}",
    "reference": "{{item.answer}}",
}
LIKE = {**CHECK, "type": "text_similarity", "name": "like", "evaluation_metric": "bleu"}
del LIKE["operation"]
SCORE: dict[str, Any] = {
    "type": "score_model",
    "name": "judge",
    "model": "toy",
    "input": [{"role": "user", "content": "Judge {{sample.output_text}}"}],
}
LABEL = {**SCORE, "type": "label_model", "labels": ["good", "bad"], "passing_labels": ["good"]}
CODE = "def grade(sample, item): return 1"
PYTHON = {"type": "python", "name": "code", "source": CODE}
MULTI: dict[str, Any] = {
    "type": "multi",
    "name": "both",
    "graders": {"exact": CHECK, "like": LIKE},
    "calculate_output": "0.5 * exact + 0.5 * like",
}
PARTS: list[dict[str, Any]] = [
    {**PYTHON, "image_tag": "2025-05-08"},
    {**MULTI, "graders": {"code": PYTHON}, "calculate_output": "code"},
    {**SCORE, "range": [1.0, 10.0], "sampling_params": {"temperature": 0.5, "seed": 3}},
    {**SCORE, "input": [{"role": "developer", "content": {"type": "input_text", "text": "a"}}]},
    {**SCORE, "input": [{"role": "user", "content": ["a", {"type": "output_text", "text": "b"}]}]},
]


@pytest.mark.parametrize("document", [CHECK, LIKE, SCORE, LABEL, PYTHON, MULTI, *PARTS])
def test_a_grader_is_read_and_written_as_it_was(document: dict[str, Any]) -> None:
    assert to_document(parse(document)) == document


def test_a_single_grader_of_a_multi_goes_by_its_name() -> None:
    single = {**MULTI, "graders": CHECK, "calculate_output": "exact"}
    assert to_document(parse(single))["graders"] == {"exact": CHECK}


@pytest.mark.parametrize(
    ("document", "field", "why"),
    [
        ("string_check", "grader", "must be an object"),
        (None, "grader", "must be an object"),
        ({}, "grader", "type"),
        ({**CHECK, "type": "magic"}, "grader.type", "magic"),
        ({**CHECK, "operation": "regex"}, "grader.operation", "regex"),
        ({**CHECK, "extra": 1}, "grader.extra", "unknown field"),
        ({**CHECK, "name": ""}, "grader.name", "length"),
        ({**CHECK, "reference": "{{answer}}"}, "grader.reference", "must begin with `item.`"),
        ({**LIKE, "evaluation_metric": "rouge_9"}, "grader.evaluation_metric", "rouge_9"),
        ({**SCORE, "range": [1, 1]}, "grader.range", "a lower and a higher number"),
        ({**SCORE, "range": [0, float("inf")]}, "grader.range", "a lower and a higher number"),
        ({**SCORE, "range": [1]}, "grader.range", "length"),
        ({**SCORE, "input": []}, "grader.input", "length"),
        (
            {**SCORE, "sampling_params": {"temperature": 9}},
            "grader.sampling_params.temperature",
            "<= 2",
        ),
        (
            {**SCORE, "input": [{"role": "user", "content": "{{x}}"}]},
            "grader.input[0].content",
            "must begin with `item.`",
        ),
        (
            {**SCORE, "input": [{"role": "user", "content": {"type": "input_image"}}]},
            "grader.input[0].content.type",
            "input_image",
        ),
        ({**LABEL, "passing_labels": ["fine"]}, "grader.passing_labels", "not one of the labels"),
        ({**PYTHON, "source": "x = 1"}, "grader.source", "def grade(sample, item)"),
        ({**PYTHON, "source": "def grade(a): return 1"}, "grader.source", "other arguments"),
        ({**PYTHON, "source": "def grade(a, b): ("}, "grader.source", "(line 1)"),
        ({**PYTHON, "source": "if 1:\n def grade(a, b): 1"}, "grader.source", "top level"),
        ({**PYTHON, "source": "async def grade(a, b): 1"}, "grader.source", "top level"),
        ({**PYTHON, "source": "\ud800"}, "grader.source", "not valid Python"),
        ({**PYTHON, "source": "a" + ".b" * 100_000}, "grader.source", "nested too deeply"),
        ({**PYTHON, "source": CODE + "#" * 256_000}, "grader.source", "length"),
        ({**PYTHON, "source": CODE + "#" + "ä" * 128_000}, "grader.source", "256000 bytes"),
        ({**MULTI, "graders": {}}, "grader.graders", "1 to 16"),
        ({**MULTI, "graders": {"a b": CHECK}}, "grader.graders", "is not a name"),
        ({**MULTI, "graders": {"max": CHECK}}, "grader.graders", "is not a name"),
        ({**MULTI, "graders": {"and": CHECK}}, "grader.graders", "is not a name"),
        (
            {**MULTI, "graders": {"code": {**PYTHON, "source": "1 +"}}},
            "grader.graders.code.source",
            "not valid Python",
        ),
        ({**MULTI, "graders": {"deep": MULTI}}, "grader.graders[...].type", "multi"),
        ({**MULTI, "calculate_output": "exact + x"}, "grader.calculate_output", "uses 'x'"),
        (
            {**MULTI, "graders": {"exact": {**CHECK, "input": "{{sample.id}}"}}},
            "grader.graders.exact.input",
            "a sample has only",
        ),
    ],
)
def test_what_is_no_grader_is_refused_by_its_field(document: Any, field: str, why: str) -> None:
    with pytest.raises(InvalidGrader) as raised:
        parse(document)
    assert raised.value.field == field
    assert why in raised.value.message
