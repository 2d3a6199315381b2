"""The how-to on methods, run as it is printed by a whole server that trains and serves."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from tests.support.clients.jobs import ended
from tests.support.processes import pages
from tests.support.processes.windlass import NO_SPARE, Windlass, make_single, running

from windlass.client import Windlass as Client
from windlass.demo.questions import split

pytestmark = pytest.mark.torch
PAGE = "how-to/choose-a-training-method.md"
HI = [{"role": "user", "content": "I have a red cat. What color is my cat?"}]
SECONDS = 240


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Iterator[Windlass]:
    with running(make_single(tmp_path_factory.mktemp("methods") / "data", NO_SPARE)) as made:
        with Client(made.url, made.owner_key) as client:
            for name in ("my-base", "my-large"):
                client.models.import_folder(name, tiny_model)
        yield made


def windlass(**asked: Any) -> dict[str, Any]:
    """The `windlass` of a request."""
    return {"windlass": asked}


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_files(folder: Path) -> None:
    chats = [question.to_row() for question in split()[0][:16]]
    asked = [([chat["messages"][0]], chat["messages"][1]) for chat in chats]
    worse = [{**answer, "content": answer["content"].upper()} for _, answer in asked]
    write(folder / "chat.jsonl", chats)
    rows = [{"messages": prompt, "answer": good["content"]} for prompt, good in asked]
    write(folder / "questions.jsonl", rows)
    write(
        folder / "labelled.jsonl",
        [
            {"prompt": prompt, "completion": [answer], "label": answer is good}
            for (prompt, good), bad in zip(asked, worse, strict=True)
            for answer in (good, bad)
        ],
    )
    write(
        folder / "pairs.jsonl",
        [
            {"input": {"messages": p}, "preferred_output": [good], "non_preferred_output": [bad]}
            for (p, good), bad in zip(asked, worse, strict=True)
        ],
    )


def succeeded(client: Any, job: Any) -> Any:
    job = ended(client, job, SECONDS)
    assert job.status == "succeeded", job.error
    assert job.trained_tokens > 0
    return job


def test_the_page_on_methods_is_true(
    server: Windlass, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    client = server.openai()
    scope: dict[str, Any] = {"client": client}
    for block in pages.blocks(PAGE, "python"):
        exec(block, scope)
    (printed,) = pages.blocks(PAGE, "json")
    write(tmp_path / "printed.jsonl", [json.loads(printed)])
    file = client.files.create(file=tmp_path / "printed.jsonl", purpose="fine-tune")
    assert client.files.wait_for_processing(file.id).status == "processed"

    # Adapters of this kind are trained in tests/integration/runner/test_methods.py.
    assert scope["dora"].method.type == "supervised"
    client.fine_tuning.jobs.cancel(scope["dora"].id)
    kinds = {"liked": "kto", "judge": "reward", "small": "distillation"}
    for name, method in kinds.items():
        job = succeeded(client, scope[name])
        assert job.method.type == method
        model = client.models.retrieve(job.fine_tuned_model)
        assert model.windlass["kind"] == "adapter"
        assert model.windlass["task"] == ("scoring" if name == "judge" else "generation")
        if name == "judge":
            with pytest.raises(openai.BadRequestError, match="scores texts") as refused:
                client.chat.completions.create(model=model.id, messages=HI)
            assert (refused.value.code, refused.value.param) == ("wrong_model_task", "model")
        else:
            answer = client.chat.completions.create(model=model.id, messages=HI, max_tokens=8)
            assert answer.model == model.id


GRADER = {
    "type": "string_check",
    "name": "says so",
    "operation": "ilike",
    "input": "{{sample.output_text}}",
    "reference": "cat",
}


@pytest.mark.parametrize(
    ("name", "wish"),
    [
        ("pairs", {"method": {"type": "dpo", "dpo": {"hyperparameters": {"n_epochs": 1}}}}),
        ("pairs", {"hyperparameters": {"n_epochs": 1}, "extra_body": windlass(method="orpo")}),
        (
            "questions",
            {
                "method": {"type": "reinforcement", "reinforcement": {"grader": GRADER}},
                "extra_body": windlass(
                    method="rloo", config={"max_steps": 1, "max_completion_length": 8}
                ),
            },
        ),
    ],
    ids=["dpo", "orpo", "rloo"],
)
def test_what_the_other_methods_make_answers(
    server: Windlass, tmp_path: Path, name: str, wish: dict[str, Any]
) -> None:
    """True where it has learned, `test_runner*.py` say."""
    write_files(tmp_path)
    client = server.openai()
    file = client.files.create(file=tmp_path / f"{name}.jsonl", purpose="fine-tune")
    job = client.fine_tuning.jobs.create(model="my-base", training_file=file.id, **wish)
    model = succeeded(client, job).fine_tuned_model
    answer = client.chat.completions.create(model=model, messages=HI, max_tokens=8)
    assert answer.model == model
    assert answer.choices[0].message.content


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({"method": "ppo"}, "windlass.method"),
        ({"method": "kto", "config": {"packing": True}}, "windlass.config.packing"),
        ({"method": "distillation"}, "windlass.config.teacher"),
        ({"method": "distillation", "config": {"teacher": "none"}}, "windlass.config.teacher"),
    ],
)
def test_a_request_that_does_not_fit_names_its_field(
    server: Windlass, tmp_path: Path, asked: dict[str, Any], param: str
) -> None:
    write_files(tmp_path)
    client = server.openai()
    name = "labelled.jsonl" if asked["method"] == "kto" else "chat.jsonl"
    file = client.files.create(file=tmp_path / name, purpose="fine-tune")
    with pytest.raises(openai.BadRequestError) as refused:
        client.fine_tuning.jobs.create(
            model="my-base", training_file=file.id, extra_body={"windlass": asked}
        )
    assert refused.value.param == param
    if asked["method"] == "ppo":
        assert "GRPO and RLOO" in refused.value.message
