"""The how-to on rewards, run as it is printed by a whole server that trains and serves."""

import json
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
from tests.integration.how_to.test_training_methods import succeeded, write
from tests.support.environments.sandbox import needed_sandbox
from tests.support.factories.tiny_judge import GRADER, tiny_judge
from tests.support.processes import pages
from tests.support.processes.windlass import NO_SPARE, Windlass, make_single, running
from tests.unit.graders.test_definitions import SCORE

from windlass.client import Windlass as Client
from windlass.demo.questions import split

pytestmark = pytest.mark.torch
PAGE = "how-to/train-with-rewards.md"
ASKED: Any = [{"role": "user", "content": "I have a red cat. What color is my cat?"}]


@pytest.fixture(scope="module")
def judge(tiny_model: Path) -> Path:
    """A model that grades."""
    return tiny_judge(tiny_model)


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, tiny_model: Path, judge: Path
) -> Iterator[Windlass]:
    with running(make_single(tmp_path_factory.mktemp("rewards") / "data", NO_SPARE)) as made:
        with Client(made.url, made.owner_key) as client:
            client.models.import_folder("my-base", tiny_model)
            client.models.import_folder("my-judge", judge)
        yield made


def prompts(count: int) -> list[dict[str, Any]]:
    return [
        {
            "messages": [{"role": "user", "content": question.text}],
            "color": question.answer.split()[-1].rstrip("."),
            "answer": question.answer,
        }
        for question in split()[0][:count]
    ]


def test_the_page_on_rewards_is_true(
    server: Windlass, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed_sandbox()
    (printed,) = pages.blocks(PAGE, "json")
    write(tmp_path / "prompts.jsonl", [json.loads(printed), *prompts(11)])
    monkeypatch.chdir(tmp_path)
    client = server.openai()
    scope: dict[str, Any] = {"client": client}
    *before, last = pages.blocks(PAGE, "python")
    for block in before:
        exec(block, scope)
    assert scope["graded"].reward == 1
    assert scope["scored"].reward == 1
    job = succeeded(client, scope["job"])
    assert job.method.reinforcement.grader.to_dict() == scope["grader"]
    exec(last, scope)
    assert len(scope["rewards"]) == 3
    assert all(0 <= reward <= 1 for reward in scope["rewards"])
    answer = client.chat.completions.create(
        model=job.fine_tuned_model, messages=ASKED, max_tokens=24
    )
    assert answer.choices[0].message.content


def test_a_model_that_the_platform_serves_grades(server: Windlass) -> None:
    """The tiny model gives no number, and says so through the real engine."""
    found = server.openai().fine_tuning.alpha.graders.run(
        grader={**SCORE, "model": "my-base"}, model_sample="red"
    )
    assert found.reward == 0
    assert found.metadata.errors.api_model_grader_parse_error is True
    assert found.metadata.errors.api_model_grader_server_error is False
    assert found.metadata.token_usage


@pytest.mark.long
def test_a_job_is_rewarded_as_the_same_answers_are_by_hand(
    server: Windlass, tmp_path: Path
) -> None:
    """A judge of the project grades a job, whose model samples so coldly that it repeats itself."""
    client = server.openai()
    rows = prompts(4)
    write(tmp_path / "prompts.jsonl", rows)
    with (tmp_path / "prompts.jsonl").open("rb") as content:
        file = client.files.create(file=content, purpose="fine-tune")
    close = {
        "type": "text_similarity",
        "name": "close",
        "evaluation_metric": "rouge_l",
        "input": "{{sample.output_text}}",
        "reference": "{{item.answer}}",
    }
    grader: Any = {
        "type": "multi",
        "name": "judged",
        "graders": {"judge": GRADER, "close": close},
        "calculate_output": "0.5 * judge + 0.5 * close",
    }
    job = client.fine_tuning.jobs.create(
        model="my-base",
        training_file=file.id,
        seed=1,
        method={
            "type": "reinforcement",
            "reinforcement": {
                "grader": grader,
                "hyperparameters": {"n_epochs": 1, "batch_size": 4, "compute_multiplier": 0.25},
            },
        },
        extra_body={"windlass": {"config": {"max_completion_length": 24, "temperature": 0.01}}},
    )
    by_hand = []
    for row in rows:
        said = client.chat.completions.create(
            model="my-base", messages=row["messages"], max_tokens=24, temperature=0
        )
        graded = client.fine_tuning.alpha.graders.run(
            grader=grader, model_sample=said.choices[0].message.content or "", item=row
        )
        by_hand.append(graded.reward)
        assert graded.sub_rewards["judge"] in (0.25, 0.75)
    succeeded(client, job)
    (event,) = [
        event
        for event in client.fine_tuning.jobs.list_events(job.id, limit=100)
        if event.type == "metrics" and "train_mean_reward" in event.data
    ]
    assert event.data["train_ungraded"] == 0
    assert event.data["train_mean_reward"] == pytest.approx(mean(by_hand), abs=1e-4)
