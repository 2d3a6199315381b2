"""The main journey through openai-python: a file goes in, a fine-tuned model answers."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.processes.windlass import Windlass
from tests.support.waiting import wait_until

from windlass.client import Windlass as Client
from windlass.demo.questions import Question, split

pytestmark = pytest.mark.torch
ENOUGH = 20


@pytest.fixture(scope="module")
def journey(windlass: Windlass, base_model: str, tmp_path_factory: Any) -> dict[str, Any]:
    """One fine-tuning job from upload to success, and what was seen on the way."""
    folder = tmp_path_factory.mktemp("journey")
    train, held_out = split()
    training, validation = write(folder / "train.jsonl", train), write(folder / "v.jsonl", held_out)
    client = windlass.openai()
    before = right(client, base_model, held_out, temperature=0)
    training_file = client.files.create(file=training, purpose="fine-tune")
    validation_file = client.files.create(file=validation, purpose="fine-tune")
    created = client.fine_tuning.jobs.create(
        model=base_model,
        training_file=training_file.id,
        validation_file=validation_file.id,
        suffix="facts",
        seed=11,
        metadata={"team": "e2e"},
        method={"type": "supervised", "supervised": {"hyperparameters": {"n_epochs": "auto"}}},
    )
    with Client(windlass.url, windlass.owner_key) as ours:
        events = list(ours.jobs.events(created.id))
    job = client.fine_tuning.jobs.retrieve(created.id)
    assert job.status == "succeeded", (job.error, windlass.logs())
    return {
        "client": client, "created": created, "job": job, "events": events,
        "held_out": held_out, "before": before, "training_file": training_file,
    }  # fmt: skip


def write(path: Path, questions: list[Question]) -> Path:
    path.write_text("".join(json.dumps(q.to_row()) + "\n" for q in questions))
    return path


def ask(client: Any, model: str, question: Question, **options: Any) -> Any:
    return client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": question.text}],
        max_completion_tokens=32,
        **options,
    )


def right(client: Any, model: str, questions: list[Question], **options: Any) -> int:
    return sum(
        ask(client, model, question, **options).choices[0].message.content.strip()
        == question.answer
        for question in questions
    )


def test_the_model_learned_what_it_did_not_know(journey: dict[str, Any]) -> None:
    client, model = journey["client"], journey["job"].fine_tuned_model
    assert journey["before"] <= 2
    assert right(client, model, journey["held_out"], temperature=0) >= ENOUGH


def test_it_answers_right_at_the_default_temperature(journey: dict[str, Any]) -> None:
    """A user who chats names no temperature, so every token is sampled."""
    questions = journey["held_out"] * 5
    model = journey["job"].fine_tuned_model
    assert right(journey["client"], model, questions) >= 0.9 * len(questions)


def test_the_job_is_openais_object(journey: dict[str, Any]) -> None:
    created, job = journey["created"], journey["job"]
    assert created.status in ("validating_files", "queued")
    assert created.object == "fine_tuning.job"
    assert created.fine_tuned_model is None
    assert created.finished_at is None
    shown = job.method.supervised.hyperparameters
    assert (shown.n_epochs, shown.batch_size, shown.learning_rate_multiplier) == (12, 8, 1)
    assert job.hyperparameters.n_epochs == 12
    assert job.seed == 11
    assert job.metadata == {"team": "e2e"}
    assert job.fine_tuned_model.startswith("ft:tiny-llama:")
    assert ":facts:" in job.fine_tuned_model
    assert job.trained_tokens > 0
    assert job.finished_at >= job.created_at
    assert job.error is None or job.error.code is None
    assert job.organization_id.startswith("org-")
    assert job.windlass["state"] == "succeeded"
    assert job.windlass["attempt"] == 1


def test_events_tell_the_story_in_order(journey: dict[str, Any]) -> None:
    client, job, events = journey["client"], journey["job"], journey["events"]
    listed = list(client.fine_tuning.jobs.list_events(job.id, limit=100))
    assert [event.id for event in reversed(listed)] == [event["id"] for event in events]
    metrics = [event for event in events if event["type"] == "metrics"]
    trained = [event["data"] for event in metrics if "train_loss" in event["data"]]
    assert trained[0]["train_loss"] > trained[-1]["train_loss"]
    assert trained[-1]["step"] == trained[-1]["total_steps"]
    assert any("valid_loss" in event["data"] for event in metrics)
    assert "successfully completed" in events[-1]["message"]


def test_checkpoints_are_models(journey: dict[str, Any]) -> None:
    client, job = journey["client"], journey["job"]
    checkpoints = list(client.fine_tuning.jobs.checkpoints.list(job.id))
    assert len(checkpoints) >= 3
    steps = [checkpoint.step_number for checkpoint in checkpoints]
    assert steps == sorted(steps, reverse=True)
    assert checkpoints[0].metrics.train_loss is not None
    model = checkpoints[0].fine_tuned_model_checkpoint
    reply = ask(client, model, journey["held_out"][0], temperature=0)
    assert reply.model == model
    assert reply.choices[0].message.content


def test_the_result_file_holds_the_steps(journey: dict[str, Any]) -> None:
    client, job = journey["client"], journey["job"]
    (file_id,) = job.result_files
    assert client.files.retrieve(file_id).purpose == "fine-tune-results"
    lines = client.files.content(file_id).text.strip().splitlines()
    assert lines[0].startswith("step,train_loss")
    assert len(lines) > 10


def test_models_are_listed_with_their_owner(journey: dict[str, Any]) -> None:
    client, job = journey["client"], journey["job"]
    models = {model.id: model for model in client.models.list()}
    assert job.fine_tuned_model in models
    assert "tiny-llama" in models
    assert client.models.retrieve(job.fine_tuned_model).object == "model"


def test_a_stream_is_the_same_answer(journey: dict[str, Any]) -> None:
    client, model = journey["client"], journey["job"].fine_tuned_model
    question = journey["held_out"][0]
    whole = ask(client, model, question, temperature=0)
    chunks = list(
        ask(
            client,
            model,
            question,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].choices == []
    assert chunks[-1].usage == whole.usage
    assert all(chunk.usage is None for chunk in chunks[:-1])
    bare = list(ask(client, model, question, stream=True, temperature=0))
    assert all(chunk.usage is None for chunk in bare)
    assert bare[-1].choices[0].finish_reason == "stop"


def test_completions_and_embeddings_answer(journey: dict[str, Any]) -> None:
    client = journey["client"]
    completion = client.completions.create(model="tiny-llama", prompt="Ahoy", max_tokens=2)
    assert completion.usage.completion_tokens == 2
    vectors = client.embeddings.create(model="tiny-llama", input=["a red cat", "a blue dog"])
    assert len(vectors.data) == 2
    assert len(vectors.data[0].embedding) == 128


def test_every_token_is_accounted_for(journey: dict[str, Any], windlass: Windlass) -> None:
    model, created_at = journey["job"].fine_tuned_model, journey["job"].created_at
    with Client(windlass.url, windlass.owner_key) as ours:
        key = ours.post("/v1/api_keys", {"name": "counted", "role": "project_member"})
        client = windlass.openai(key["value"])
        whole = ask(client, model, journey["held_out"][1], temperature=0)
        streamed = list(ask(client, model, journey["held_out"][2], stream=True, temperature=0))
        vectors = client.embeddings.create(model="tiny-llama", input="a red cat")
        query = {"start_time": created_at - 60, "api_key_ids[]": key["id"]}
        wanted = {
            ("chat", model): 2,
            ("embedding", "tiny-llama"): 1,
        }
        wait_until(lambda: requests(ours, query) == wanted)
        chat = usage(ours, query)["chat", model]
        embedded = usage(ours, query)["embedding", "tiny-llama"]
        training = usage(ours, {"start_time": created_at - 60})["training", journey["job"].model]
    text = "".join(c.choices[0].delta.content or "" for c in streamed if c.choices)
    again = ask(journey["client"], model, journey["held_out"][2], temperature=0)
    assert again.choices[0].message.content == text
    assert chat["input_tokens"] == whole.usage.prompt_tokens + again.usage.prompt_tokens
    assert chat["output_tokens"] == whole.usage.completion_tokens + again.usage.completion_tokens
    assert embedded["input_tokens"] == vectors.usage.prompt_tokens
    assert training["input_tokens"] == journey["job"].trained_tokens


def usage(client: Client, query: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    answer = client.get("/v1/usage", **query, **{"group_by[]": ["model", "kind"]})
    rows = [result for bucket in answer["data"] for result in bucket["results"]]
    return {(row["kind"], row["model"]): row for row in rows}


def requests(client: Client, query: dict[str, Any]) -> dict[tuple[str, str], int]:
    return {group: row["num_model_requests"] for group, row in usage(client, query).items()}


def test_what_a_job_uses_cannot_be_deleted_under_an_adapter(journey: dict[str, Any]) -> None:
    from openai import ConflictError

    with pytest.raises(ConflictError):
        journey["client"].models.delete("tiny-llama")
