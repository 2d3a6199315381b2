"""A real runner that compares what it trained with what training began with."""

import json
import re
from typing import Any

import pytest
from tests.integration.runner.cases import Case
from tests.integration.runner.test_continuing import assign_next, ended
from tests.integration.runner.test_rewards import script
from tests.support.environments.sandbox import needed_sandbox
from tests.unit.graders.test_definitions import SCORE

from windlass.api.runner.v1 import runner_pb2 as pb

pytestmark = pytest.mark.torch
CLOSE: dict[str, Any] = {
    "type": "text_similarity",
    "name": "close",
    "evaluation_metric": "rouge_l",
    "input": "{{sample.output_text}}",
    "reference": "{{item.reference_answer}}",
}


def evaluation(case: Case) -> pb.RunEvent:
    (told,) = [event for event in case.agent.events.values() if event.HasField("evaluation")]
    return told


def answers(case: Case) -> list[Any]:
    (results,) = case.agent.of_kind(pb.ARTIFACT_KIND_RESULT_FILE)
    lines = (results.folder / "evaluation.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.long
async def test_a_model_is_compared_with_the_one_that_training_began_with(case: Case) -> None:
    rows = case.chats(20)
    case.assign(rows=rows[:16], epochs=6, rate=4)
    too_long = {"messages": [{"role": "user", "content": "cat " * 4000}, rows[0]["messages"][1]]}
    case.evaluate([*rows[16:], too_long, *rows[:2]], CLOSE, max_examples=6)
    first = await ended(case)
    told = evaluation(case)
    result = told.evaluation
    assert result.examples == result.wins + result.ties + result.losses == 5
    assert result.wins > result.losses
    assert result.fine_tuned.mean_reward > result.base.mean_reward
    assert (result.base.ungraded, result.fine_tuned.ungraded) == (0, 0)
    assert re.match(r"The grader 'close' gives a mean reward of [01]\.", told.message)
    assert told.message.endswith(f"worse on {result.losses}. 1 leave no room for an answer.")
    phases = [event.phase for _, event in sorted(case.agent.events.items()) if event.phase]
    assert phases[-3:] == ["training", "evaluating", "uploading"]
    rows_of = answers(case)
    assert [row["line"] for row in rows_of] == [1, 2, 3, 4, 6]
    for name, score in (("base", result.base), ("fine_tuned", result.fine_tuned)):
        mean = sum(row[name]["reward"] for row in rows_of) / 5
        assert mean == pytest.approx(score.mean_reward)
        assert all(row[name]["answer"] for row in rows_of)

    # What a job begins with may be an adapter.
    case.continue_from(first.folder)
    assign_next(case, rows=rows[:8], epochs=1, rank=16)
    case.evaluate(rows[16:], CLOSE)
    await ended(case)
    assert [row["base"]["answer"] for row in answers(case)] == [
        row["fine_tuned"]["answer"] for row in rows_of[:4]
    ]

    # An attempt after one that has evaluated.
    case.agent.assignment.ClearField("evaluation")
    case.agent.artifacts.clear()
    case.agent.begin_attempt()
    await ended(case)
    assert not any(event.HasField("evaluation") for event in case.agent.events.values())


async def test_an_evaluation_that_fails_costs_nothing_but_itself(case: Case) -> None:
    case.assign(rows=case.chats(8), max_steps=1)
    case.evaluate(case.chats(2), {**SCORE, "model": "judge"})
    case.agent.judge = lambda request: pb.GradeResponse(refused="The model 'judge' is gone.")
    await ended(case)
    assert not any(event.HasField("evaluation") for event in case.agent.events.values())
    warnings = [e.message for e in case.agent.events.values() if e.level == pb.LEVEL_WARN]
    assert warnings == [
        "The fine-tuned model was not evaluated: The grader 'judge' could not be reached: "
        "The model 'judge' is gone."
    ]


async def test_a_file_that_the_grader_cannot_use_ends_the_job_before_training(case: Case) -> None:
    case.assign(rows=case.chats(8))
    case.evaluate(case.chats(2), {**CLOSE, "reference": "{{item.color}}"})
    runner = await case.start()
    assert await runner.wait() != 0
    code, message, param = case.errors()
    assert (code, param) == ("invalid_evaluation_file", "windlass.evaluation.file")
    assert "item.color" in message
    assert not case.agent.metrics()


@pytest.mark.long
async def test_all_weights_are_compared_by_a_script_on_drawn_answers(case: Case) -> None:
    needed_sandbox()
    case.assign(rows=case.chats(8), max_steps=1, lora=False)
    grader = script("return float(len(item['reference_answer']) + len(sample['output_text']) > 0)")
    case.evaluate(case.chats(2), grader, temperature=1.0)
    await ended(case)
    result = evaluation(case).evaluation
    assert (result.examples, result.ties) == (2, 2)
    assert (result.base.mean_reward, result.fine_tuned.mean_reward) == (1, 1)
