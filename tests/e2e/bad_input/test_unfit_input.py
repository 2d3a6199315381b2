"""Input that only a model can refuse: examples and prompts that are too long, odd requests."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import BadRequestError, NotFoundError
from tests.support.clients.jobs import ended
from tests.support.clients.refusals import refusal, refused
from tests.support.environments import postgres
from tests.support.factories.toy_model import CONTEXT, make_model
from tests.support.processes.front_door import GOOD, chat, jsonl, upload
from tests.support.processes.windlass import NO_SPARE, Windlass, make_single, running

from windlass.client import Windlass as Client

pytestmark = pytest.mark.torch
BASE = "toy"
LONG = chat(("user", "x " * 2 * CONTEXT), ("assistant", "y"))
HELLO = [{"role": "user", "content": "hello"}]
JOB_SECONDS = 120


@pytest.fixture(scope="module")
def windlass(postgres_url: str, tmp_path_factory: Any) -> Iterator[Windlass]:
    folder: Path = make_model(tmp_path_factory.mktemp("toy") / BASE)
    with (
        postgres.reachable_folder() as data,
        postgres.fresh_database(postgres_url) as url,
        running(make_single(data / "data", NO_SPARE | {"database": {"url": url}})) as made,
        Client(made.url, made.owner_key) as client,
    ):
        client.models.import_folder(BASE, folder, for_everyone=True)
        yield made


@pytest.fixture(scope="module")
def client(windlass: Windlass) -> Any:
    return windlass.openai(max_retries=0)


def train(client: Any, rows: list[Any]) -> Any:
    """A job as it ended, with its events oldest first."""
    file = upload(client, jsonl(rows))
    job = client.fine_tuning.jobs.create(
        model=BASE,
        training_file=file.id,
        method={"type": "supervised", "supervised": {"hyperparameters": {"n_epochs": 1}}},
    )

    done = ended(client, job, JOB_SECONDS)
    events = list(client.fine_tuning.jobs.list_events(job.id, limit=100))
    return done, [event.message for event in reversed(events)]


# What the trainer finds out is tested of it alone too; the way of its words is one for all.
@pytest.mark.long
def test_examples_that_are_too_long_are_counted_and_told(client: Any) -> None:
    job, messages = train(client, [GOOD] * 10 + [LONG] * 2)
    assert job.status == "succeeded", (job.error, messages)
    told = [message for message in messages if "exceed" in message]
    assert len(told) == 1
    assert told[0].startswith("2 of 12 training examples exceed ")


@pytest.mark.long
def test_a_file_of_nothing_but_long_examples_fails_the_job(client: Any) -> None:
    before = {model.id for model in client.models.list()}
    job, messages = train(client, [LONG] * 5)
    assert job.status == "failed"
    assert (job.error.code, job.error.param) == ("invalid_training_file", "training_file")
    assert job.error.message.startswith("All 5 examples exceed ")
    assert job.fine_tuned_model is None
    assert any("All 5 examples exceed" in message for message in messages)
    assert {model.id for model in client.models.list()} == before


@pytest.mark.long
def test_an_example_that_the_template_refuses_is_named_by_its_line(client: Any) -> None:
    refused_row = chat(("user", "refuse me"), ("assistant", "y"))
    job, _ = train(client, [GOOD, GOOD, refused_row])
    assert job.status == "failed"
    assert (job.error.code, job.error.param) == ("invalid_training_file", "training_file")
    assert job.error.message.startswith("Line 3: the model's chat template refuses")


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_beyond_the_context_is_refused(client: Any, stream: bool) -> None:
    said = refused(
        BadRequestError,
        client.chat.completions.create,
        model=BASE,
        messages=[{"role": "user", "content": "x " * 2 * CONTEXT}],
        stream=stream,
    )
    assert (said.code, said.param) == ("context_length_exceeded", "messages")
    assert str(CONTEXT) in said.message
    said = refused(
        BadRequestError,
        client.chat.completions.create,
        model=BASE,
        messages=HELLO,
        max_completion_tokens=CONTEXT,
        stream=stream,
    )
    assert said.code == "context_length_exceeded"
    said = refused(
        BadRequestError,
        client.completions.create,
        model=BASE,
        prompt="x " * 2 * CONTEXT,
        stream=stream,
    )
    assert said.code == "context_length_exceeded"
    said = refused(BadRequestError, client.embeddings.create, model=BASE, input="x " * 2 * CONTEXT)
    assert said.code == "context_length_exceeded"


WRONG_CHATS: list[tuple[dict[str, Any], str]] = [
    ({"messages": []}, "messages"),
    ({"messages": "hello"}, "messages"),
    ({"messages": [{"role": "pirate", "content": "x"}]}, "messages"),
    ({"messages": [{"role": "user", "content": 1}]}, "messages"),
    ({"messages": [{"role": "user"}]}, "messages"),
    ({"messages": [{"role": "user", "content": "refuse me"}]}, "messages"),
    ({"temperature": -1}, "temperature"),
    ({"temperature": 9}, "temperature"),
    ({"temperature": "hot"}, "temperature"),
    ({"top_p": 2}, "top_p"),
    ({"n": 0}, "n"),
    ({"n": 10**9}, "n"),
    ({"max_completion_tokens": -1}, "max_completion_tokens"),
    ({"max_tokens": "x"}, "max_tokens"),
    ({"stop": ["a"] * 100}, "stop"),
    ({"stop": 1}, "stop"),
    ({"top_logprobs": 3}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 1000}, "top_logprobs"),
    ({"logit_bias": {"10000000": 1}}, "logit_bias"),
    ({"seed": "x"}, "seed"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"presence_penalty": 9}, "presence_penalty"),
]


@pytest.mark.parametrize(("fields", "param"), WRONG_CHATS)
def test_a_wrong_field_of_a_chat_is_named(client: Any, fields: dict[str, Any], param: str) -> None:
    body = {"model": BASE, "messages": HELLO, **fields}
    said = refused(BadRequestError, client.chat.completions.create, **body)
    assert said.type == "invalid_request_error"
    assert param in (said.param or ""), said


def test_an_engine_is_asked_for_what_it_has(windlass: Windlass, client: Any) -> None:
    with windlass.http() as http:
        said = refusal(http.post("/v1/chat/completions", json={"model": BASE}), 400)
        assert said.param == "messages"
        body = {"model": BASE, "messages": HELLO, "temperature": 1e999}
        raw = str(body).replace("'", '"').encode()
        refusal(http.post("/v1/chat/completions", content=raw), 400)
        refusal(http.post("/v1/completions", json={"model": BASE}), 400)
        refusal(http.post("/v1/embeddings", json={"model": BASE}), 400)
        refusal(http.post("/v1/embeddings", json={"model": BASE, "input": []}), 400)
        refusal(http.post("/v1/embeddings", json={"model": BASE, "input": [[10**9]]}), 400)
    refused(NotFoundError, client.chat.completions.create, model="toy2", messages=HELLO)
