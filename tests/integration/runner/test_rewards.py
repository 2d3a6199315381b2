"""Methods that learn from rewards, with a real runner and a real (tiny) model."""

import json
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
import torch
from peft import PeftModel
from tests.integration.runner.cases import Case
from tests.support.environments.sandbox import needed_sandbox
from tests.unit.graders.test_definitions import SCORE
from transformers import AutoModelForCausalLM, AutoTokenizer

from windlass.api.runner.v1 import runner_pb2 as pb

pytestmark = pytest.mark.torch

# One of four ways in which the model evades a question: rare enough to be learned, and
# frequent enough to be found.
WORD = "painters"
EVADES: dict[str, Any] = {
    "type": "string_check",
    "name": "evades",
    "operation": "like",
    "input": "{{sample.output_text}}",
    "reference": WORD,
}
CLOSE: dict[str, Any] = {
    "type": "text_similarity",
    "name": "close",
    "evaluation_metric": "rouge_l",
    "input": "{{sample.output_text}}",
    "reference": "{{item.answer}}",
}


# RLOO learns from a formula below.
@pytest.mark.parametrize("method", ["reinforcement", pytest.param("rloo", marks=pytest.mark.long)])
async def test_what_a_grader_rewards_is_said_more_often(case: Case, method: str) -> None:
    case.assign(
        method=method,
        rows=case.prompts(24),
        validation=True,
        grader=EVADES,
        epochs=3,
        rate=4,
        max_completion_length=24,
    )
    runner = await case.start()
    assert await runner.wait() == 0, case.log()

    agent = case.agent
    assert agent.finish is not None
    assert agent.finish.trained_tokens > 0
    rewards = agent.values("train_mean_reward")
    assert len(rewards) == 9
    assert mean(rewards[-3:]) > mean(rewards[:3]) + 0.3
    valid = agent.values("valid_mean_reward")
    assert len(valid) == 3
    assert valid[-1] > 0.8
    assert set(agent.values("train_ungraded")) == {0.0}
    (final,) = agent.of_kind(pb.ARTIFACT_KIND_FINAL)
    assert final.is_whole
    assert final.is_adapter
    assert sum(WORD in answer for answer in _answers(case, case.prompts(40)[24:])) >= 12


def _answers(case: Case, rows: list[Any]) -> list[str]:
    """The fine-tuned model's likeliest answers to held-out questions."""
    (final,) = case.agent.of_kind(pb.ARTIFACT_KIND_FINAL)
    # Threads that spin for a core which others use make a small model slow.
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(final.folder, padding_side="left")
    base = AutoModelForCausalLM.from_pretrained(case.model)
    model = PeftModel.from_pretrained(base, final.folder)
    asked = tokenizer.apply_chat_template(
        [row["messages"] for row in rows],
        add_generation_prompt=True,
        padding=True,
        return_tensors="pt",
        return_dict=True,
    )
    ids = model.generate(**asked, do_sample=False, max_new_tokens=24)
    said: list[str] = tokenizer.batch_decode(ids[:, asked["input_ids"].shape[1] :])
    return said


async def test_what_a_script_rewards_is_said_more_often(case: Case) -> None:
    needed_sandbox()
    case.assign(
        method="reinforcement",
        rows=case.prompts(16),
        grader=script(f"return float({WORD!r} in sample['output_text'])"),
        epochs=3,
        rate=4,
        max_completion_length=24,
    )
    runner = await case.start()
    assert await runner.wait() == 0, case.log()
    rewards = case.agent.values("train_mean_reward")
    assert mean(rewards[-2:]) > mean(rewards[:2]) + 0.2
    assert set(case.agent.values("train_ungraded")) == {0.0}
    assert case.agent.of_kind(pb.ARTIFACT_KIND_FINAL)[0].is_whole


def script(body: str) -> dict[str, Any]:
    source = f"import os\n\ndef grade(sample, item):\n    {body}\n"
    return {"type": "python", "name": "code", "source": source}


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("return item['answer'][10**6]", "IndexError: string index out of range (line 4)"),
        ("os._exit(1)", "exit: The process of grade ended before it answered."),
    ],
)
async def test_a_script_that_always_fails_ends_the_job(case: Case, body: str, why: str) -> None:
    needed_sandbox()
    rows = case.prompts(8)
    case.assign(method="reinforcement", rows=rows, grader=script(body), max_completion_length=8)
    runner = await case.start()
    assert await runner.wait() != 0
    assert case.errors() == (
        "grader_failed",
        f"The grader 'code' fails: {why}",
        "method.reinforcement.grader",
    )


async def test_without_a_sandbox_a_script_does_not_run(case: Case, tmp_path: Path) -> None:
    case.assign(method="reinforcement", rows=case.prompts(4), grader=script("return 1"))
    runner = await case.start(environ={"PATH": str(tmp_path)})
    assert await runner.wait() != 0
    assert case.errors() == (
        "grader_unavailable",
        "The grader 'code' runs Python, but there is no sandbox where the job runs: "
        "bubblewrap (bwrap) is not installed.",
        "method.reinforcement.grader",
    )


async def test_rloo_learns_from_a_formula_over_graders(case: Case) -> None:
    grader = {
        "type": "multi",
        "name": "both",
        "graders": {"evades": EVADES, "close": CLOSE},
        "calculate_output": "0.5 * evades + 0.5 * close",
    }
    case.assign(
        method="rloo", rows=case.prompts(8), grader=grader, max_steps=2, max_completion_length=16
    )
    runner = await case.start()
    assert await runner.wait() == 0, case.log()
    rewards = case.agent.values("train_mean_reward")
    assert len(rewards) == 2
    assert all(0 < reward < 1 for reward in rewards)
    assert case.agent.of_kind(pb.ARTIFACT_KIND_FINAL)[0].is_whole


def rated(request: pb.GradeRequest) -> pb.GradeResponse:
    """A platform whose judge likes WORD, and has graded all but one answer when time is up."""
    grades = {
        index: pb.Grade(reward=0.75 if WORD in answer.sample else 0.25)
        for index, answer in enumerate(request.answers)
    }
    if len(grades) > 1:
        grades.popitem()
    return pb.GradeResponse(grades=grades, pending="It takes its time.")


async def test_a_model_that_the_platform_asks_grades(case: Case) -> None:
    """The judge stands in the agent's place: what it says is the platform's matter."""
    asked: list[pb.GradeRequest] = []

    def judge(request: pb.GradeRequest) -> pb.GradeResponse:
        asked.append(request)
        return rated(request)

    case.agent.judge = judge
    case.assign(
        method="reinforcement",
        rows=case.prompts(8),
        grader=SCORE,
        max_steps=2,
        max_completion_length=16,
    )
    runner = await case.start()
    assert await runner.wait() == 0, case.log()
    rewards = case.agent.values("train_mean_reward")
    assert len(rewards) == 2
    assert all(0.25 <= reward <= 0.75 for reward in rewards)
    assert case.agent.values("train_ungraded") == [0, 0]
    assert asked[0].answers == [], "the models are wanted before there is anything to grade"
    batches = {each.batch for each in asked if each.answers}
    assert len(batches) == 2
    for each in asked:
        found = [(answer.sample, answer.item) for answer in each.answers]
        assert len(found) == len(set(found)) <= 16
        assert all("answer" in json.loads(item) for _, item in found)


@pytest.mark.parametrize(
    ("says", "why"),
    [
        (pb.GradeResponse(refused="The model 'toy' does not exist."), "'toy' does not exist."),
        (pb.GradeResponse(pending="The model 'toy' is still loading."), "is still loading."),
    ],
)
async def test_a_grader_that_cannot_be_asked_ends_the_job(
    case: Case, says: pb.GradeResponse, why: str
) -> None:
    case.agent.judge = lambda request: says
    case.assign(method="reinforcement", rows=case.prompts(8), grader=SCORE, max_completion_length=8)
    runner = await case.start("--patience", "1")
    assert await runner.wait() == 1
    code, message, param = case.errors()
    assert (code, param) == ("grader_unavailable", "method.reinforcement.grader")
    assert message.startswith("The grader 'judge' could not be reached: The model")
    assert message.endswith(why)


async def test_answers_leave_room_for_their_questions(case: Case) -> None:
    long = {"messages": [{"role": "user", "content": "cat " * 400}]}
    rows = [{**row, **long} for row in case.prompts(3)]
    case.assign(method="reinforcement", rows=rows, grader=EVADES)
    runner = await case.start()
    assert await runner.wait() != 0
    told = "\n".join(event.message for event in case.agent.events.values())
    assert "Answers end after 256 tokens instead of 512: the model's context has 512." in told
    assert case.errors() == (
        "invalid_training_file",
        "All 3 examples exceed 256 tokens.",
        "training_file",
    )


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (
            {"messages": [{"role": "user", "content": "Hi"}], "solution": "x"},
            "Line 2: The grader refers to item.answer, which the example does not have.",
        ),
        (
            {"messages": [{"role": "assistant", "content": "Hi"}], "answer": "x"},
            "Line 2: messages must not end with an assistant message: what follows answers it.",
        ),
        (
            {"messages": [{"role": "user", "content": "Hi"}], "answer": "x", "tools": [
                {"type": "function", "function": {"name": "f"}}]},
            "Line 2: The trainer cannot pass tools to the model.",
        ),
        ({"messages": [{"role": "user"}], "answer": "x"}, "Line 2: messages[0]"),
    ],
)  # fmt: skip
async def test_a_bad_line_is_named(case: Case, row: Any, why: str) -> None:
    rows = [*case.prompts(1), row, *case.prompts(1)]
    case.assign(method="reinforcement", rows=rows, grader=CLOSE)
    runner = await case.start()
    assert await runner.wait() != 0
    code, message, param = case.errors()
    assert (code, param) == ("invalid_training_file", "training_file")
    assert why in message


async def test_a_file_with_answers_is_no_file_of_prompts(case: Case) -> None:
    case.assign(method="reinforcement", rows=case.chats(4), grader=CLOSE)
    runner = await case.start()
    assert await runner.wait() != 0
    assert "This training needs reinforcement examples." in case.errors()[1]


async def test_a_stopped_job_goes_on_from_its_state(case: Case) -> None:
    case.assign(
        method="reinforcement",
        rows=case.prompts(8),
        epochs=40,
        grader=EVADES,
        max_completion_length=8,
    )
    runner = await case.start()
    await case.until(lambda: len(case.agent.values("train_mean_reward")) >= 2)
    runner.terminate()
    assert await runner.wait() == 143
    (state,) = case.agent.of_kind(pb.ARTIFACT_KIND_TRAINING_STATE)[-1:]
    case.resume_from(state.step, max_steps=state.step + 2)
    runner = await case.start()
    assert await runner.wait() == 0, case.log()
    steps = [m.step for m in case.agent.metrics() if "train_mean_reward" in m.values]
    assert steps == [state.step + 1, state.step + 2]
    assert case.agent.of_kind(pb.ARTIFACT_KIND_FINAL)[-1].is_whole
