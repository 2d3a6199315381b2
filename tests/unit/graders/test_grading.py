"""From an answer to its reward, with and without models that are asked."""

from typing import Any

import pytest
from tests.unit.graders.test_definitions import CHECK, LABEL, LIKE, MULTI, PYTHON, SCORE

from windlass.graders import (
    Fault,
    Grade,
    Subject,
    Ungradable,
    grade,
    models_asked,
    parse,
    questions,
)


def graded(document: dict[str, Any], sample: str, answers: Any = None, **item: Any) -> Grade:
    return grade(parse(document), Subject(sample, item), answers)


@pytest.mark.parametrize(
    ("operation", "sample", "answer", "reward"),
    [
        ("eq", "Blue", "Blue", 1),
        ("eq", "Blue", "blue", 0),
        ("ne", "Blue", "blue", 1),
        ("ne", "Blue", "Blue", 0),
        ("like", "It is Blue.", "Blue", 1),
        ("like", "It is Blue.", "blue", 0),
        ("ilike", "It is Blue.", "bLUE", 1),
        ("ilike", "It is Blue.", "red", 0),
    ],
)
def test_a_text_is_checked(operation: str, sample: str, answer: str, reward: float) -> None:
    found = graded({**CHECK, "operation": operation}, sample, answer=answer)
    assert found == Grade(reward, {"exact": reward}, {})


def test_a_multi_grader_reckons_with_its_parts() -> None:
    found = graded(MULTI, "a cat", answer="a cat")
    assert found.scores == pytest.approx({"exact": 1, "like": 1})
    assert (found.reward, found.faults) == (1.0, {})
    assert graded(MULTI, "a dog", answer="a cat").reward < 0.5


def test_a_part_that_cannot_grade_leaves_no_reward() -> None:
    found = graded({**MULTI, "graders": {"exact": CHECK, "like": {**LIKE, "input": "a"}}}, "a")
    assert found.reward == 0
    assert found.scores == {}
    assert found.faults == {Fault.INVALID_VARIABLE: "There is no item.answer."}


def test_a_formula_without_a_value_leaves_no_reward() -> None:
    document = {**MULTI, "graders": {"exact": CHECK}, "calculate_output": "1 / exact"}
    found = graded(document, "a", answer="b")
    assert (found.reward, found.scores, [*found.faults]) == (0, {"exact": 0.0}, [Fault.FORMULA])


def test_a_model_is_asked_for_a_number_alone() -> None:
    document = {**SCORE, "range": [1, 10], "sampling_params": {"max_completions_tokens": 5}}
    (asked,) = questions(parse(document), Subject("an answer", {})).values()
    assert asked.body() == {
        "model": "toy",
        "messages": [
            {"role": "system", "content": "Answer with one number from 1 to 10, and nothing else."},
            {"role": "user", "content": "Judge an answer"},
        ],
        "max_completion_tokens": 5,
        "temperature": 0,
    }


def test_what_a_model_is_asked_has_a_bound() -> None:
    document = {**SCORE, "input": [*SCORE["input"]] * 3}
    assert not questions(parse(document), Subject("x" * 100_000, {}))
    assert [*graded(document, "x" * 100_000).faults] == [Fault.OTHER]


def test_a_system_message_keeps_the_first_place() -> None:
    messages = [{"role": "developer", "content": "Be strict."}, *LABEL["input"]]
    (asked,) = questions(parse({**LABEL, "input": messages}), Subject("x", {})).values()
    first, second = asked.body()["messages"]
    assert first["role"] == "system"
    assert first["content"].startswith("Be strict.\n\nAnswer with exactly one of these")
    assert first["content"].endswith("good, bad")
    assert second == {"role": "user", "content": "Judge x"}


@pytest.mark.parametrize(
    ("answer", "reward"),
    [("0.5", 0.5), ("Score: 1", 1), ("1.0/1.0", 1), ("  0 \n", 0), ('{"result": 0.25}', 0.25)],
)
def test_a_number_is_read_out_of_an_answer(answer: str, reward: float) -> None:
    assert graded(SCORE, "x", {"judge": answer}).reward == reward


@pytest.mark.parametrize("answer", ["very good", "7", "-1", ""])
def test_an_answer_without_a_number_in_range_is_a_fault(answer: str) -> None:
    found = graded(SCORE, "x", {"judge": answer})
    assert (found.reward, [*found.faults]) == (0, [Fault.MODEL_PARSE])


@pytest.mark.parametrize(("answer", "reward"), [("good", 1), (' "Bad".', 0), ("GOOD\n", 1)])
def test_a_label_passes_or_not(answer: str, reward: float) -> None:
    assert graded(LABEL, "x", {"judge": answer}) == Grade(reward, {"judge": reward}, {})


def test_an_answer_that_is_no_label_is_a_fault() -> None:
    assert [*graded(LABEL, "x", {"judge": "not so good"}).faults] == [Fault.MODEL_PARSE]


def test_what_went_wrong_with_a_model_is_told() -> None:
    error = Ungradable(Fault.MODEL_SERVER, "The engine is away.")
    assert graded(SCORE, "x", {"judge": error}).faults == {Fault.MODEL_SERVER: error.message}


def test_nothing_is_asked_of_a_model_without_the_items_field() -> None:
    document = {**SCORE, "input": [{"role": "user", "content": "{{item.missing}}"}]}
    assert not questions(parse(document), Subject("x", {}))
    assert [*graded(document, "x").faults] == [Fault.INVALID_VARIABLE]


def test_the_models_that_a_grader_asks_are_known_by_their_fields() -> None:
    assert models_asked(parse(CHECK)) == {}
    assert models_asked(parse(SCORE)) == {"model": "toy"}
    parts = {"exact": CHECK, "one": SCORE, "two": {**LABEL, "model": "other"}}
    many = {**MULTI, "graders": parts, "calculate_output": "exact + one + two"}
    assert models_asked(parse(many)) == {
        "graders.one.model": "toy",
        "graders.two.model": "other",
    }


def test_what_a_program_returned_is_its_score() -> None:
    assert graded(PYTHON, "x", {"code": 2.5}) == Grade(2.5, {"code": 2.5}, {})
    document = {**MULTI, "graders": {"exact": CHECK, "code": PYTHON}}
    document["calculate_output"] = "exact + code"
    assert graded(document, "a", {"code": 0.5}, answer="a").reward == 1.5


def test_a_program_that_failed_leaves_no_reward() -> None:
    error = Ungradable(Fault.PYTHON_RUNTIME, "KeyError: 'x' (line 2)")
    assert graded(PYTHON, "x", {"code": error}) == Grade(0, {}, {error.fault: error.message})
    assert [*graded(PYTHON, "x").faults] == [Fault.PYTHON_SERVER]
