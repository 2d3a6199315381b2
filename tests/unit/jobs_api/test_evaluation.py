"""`windlass.evaluation` of a body: what a job keeps of it, and what is refused by its field."""

import json
from typing import Any

import pytest
from tests.unit.graders.test_definitions import PYTHON, SCORE

from windlass.core.errors import InvalidArgument
from windlass.gateway.openapi.jobs import components
from windlass.jobs.creation.spec_builder import Draft, drafted
from windlass.jobs.domain.evaluation import Evaluation
from windlass.jobs_api.request import DOCUMENT_BYTES, GRADER_BYTES, decode

GRADER: dict[str, Any] = {
    "type": "string_check",
    "name": "exact",
    "operation": "eq",
    "input": "{{sample.output_text}}",
    "reference": "{{item.reference_answer}}",
}
AT = "windlass.evaluation"
REWARDED = {"type": "reinforcement", "reinforcement": {"grader": SCORE}}


def draft(evaluation: Any, **fields: Any) -> Draft:
    windlass = {**fields.pop("windlass", {}), "evaluation": evaluation}
    body = {"model": "tiny", "training_file": "file-1", "windlass": windlass, **fields}
    return drafted(decode(json.dumps(body).encode()), default_backend="trl", runs_python=False)


def test_a_job_keeps_its_evaluation_with_what_is_left_out_resolved() -> None:
    made = draft({"file": "file-2", "grader": GRADER, "max_examples": 7})
    assert made.spec.evaluation == Evaluation(
        file="file-2", grader=GRADER, max_examples=7, max_completion_tokens=256
    )
    assert list(made.graders) == [f"{AT}.grader"]
    assert draft(None).spec.evaluation is None


def test_without_a_grader_of_its_own_that_of_the_rewards_compares() -> None:
    made = draft({"file": "file-2"}, method=REWARDED)
    assert made.spec.evaluation is not None
    assert made.spec.evaluation.grader == made.spec.grader
    assert list(made.graders) == ["method.reinforcement.grader"]
    both = draft({"file": "file-2", "grader": GRADER}, method=REWARDED)
    assert both.spec.evaluation is not None
    assert (both.spec.evaluation.grader, both.spec.grader["type"]) == (GRADER, "score_model")


@pytest.mark.parametrize(
    ("evaluation", "fields", "param"),
    [
        ({"file": "f"}, {}, f"{AT}.grader"),
        ({"grader": GRADER}, {}, f"{AT}.file"),
        ({"file": "a\nb", "grader": GRADER}, {}, f"{AT}.file"),
        ({"file": "f", "grader": {**GRADER, "operation": "is"}}, {}, f"{AT}.grader.operation"),
        ({"file": "f", "grader": PYTHON}, {}, f"{AT}.grader.type"),
        ({"file": "f", "grader": GRADER, "max_examples": 1001}, {}, f"{AT}.max_examples"),
        ({"file": "f", "grader": GRADER, "max_completion_tokens": 0}, {},
         f"{AT}.max_completion_tokens"),
        ({"file": "f", "grader": GRADER, "temperature": -1}, {}, f"{AT}.temperature"),
        ({"file": "f", "grader": GRADER, "samples": 2}, {}, f"{AT}.samples"),
        ({"file": "f", "grader": GRADER}, {"windlass": {"method": "reward"}}, AT),
        ({"file": "f", "grader": {**GRADER, "reference": "x" * GRADER_BYTES}}, {}, f"{AT}.grader"),
    ],
)  # fmt: skip
def test_what_cannot_be_evaluated_is_refused_by_its_field(
    evaluation: Any, fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(InvalidArgument) as refused:
        draft(evaluation, **fields)
    assert refused.value.param == param


def test_a_long_grader_is_not_counted_against_the_rest_of_the_body() -> None:
    source = "def grade(sample, item):\n    return 1.0\n" + "#" * DOCUMENT_BYTES
    with pytest.raises(InvalidArgument, match=r"Python graders are disabled"):
        draft({"file": "f", "grader": {**PYTHON, "source": source}})


def test_the_schema_says_which_graders_there_are() -> None:
    grader = components()["AskedEvaluation"]["properties"]["grader"]
    assert {"$ref": "#/components/schemas/StringCheck"} in grader["anyOf"]
