"""The page on TorchTune, run as it is printed by a whole server, until its model has learned."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from tests.integration.how_to.test_training_methods import write_files
from tests.support.clients.jobs import ended
from tests.support.environments.torchtune_env import torchtune_python
from tests.support.processes import pages
from tests.support.processes.windlass import NO_SPARE, Windlass, make_single, running

from windlass.client import Windlass as Client
from windlass.demo.questions import split

pytestmark = [pytest.mark.torch, pytest.mark.timeout(900)]
PAGE = "how-to/train-with-torchtune.md"
SECONDS = 240


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Iterator[Windlass]:
    agent = NO_SPARE["agent"] | {"torchtune_python": str(torchtune_python())}
    with running(make_single(tmp_path_factory.mktemp("tune") / "data", {"agent": agent})) as made:
        with Client(made.url, made.owner_key) as client:
            client.models.import_folder("my-base", tiny_model)
        yield made


def write_chats(folder: Path) -> None:
    rows = (question.to_row() for question in split()[0])
    (folder / "chat.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def succeeded(client: Any, job: Any) -> Any:
    job = ended(client, job, SECONDS)
    assert job.status == "succeeded", job.error
    return job


def right(client: Any, model: str) -> int:
    """The number of the 24 untrained questions that the model answers word for word."""
    return sum(
        client.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": question.text}],
            temperature=0,
            max_tokens=24,
        )
        .choices[0]
        .message.content
        == question.answer
        for question in split()[1]
    )


def test_a_job_of_the_page_learns_and_answers(
    server: Windlass, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_chats(tmp_path)
    monkeypatch.chdir(tmp_path)
    client = server.openai()
    scope: dict[str, Any] = {"client": client}
    for block in pages.blocks(PAGE, "python"):
        exec(block, scope)
    job = succeeded(client, scope["job"])
    assert job.windlass["backend"] == job.windlass["framework"] == "torchtune"
    assert job.trained_tokens > 0
    events = client.fine_tuning.jobs.list_events(job.id, limit=100).data
    measured = [event.data for event in events if event.type == "metrics"]
    assert {"train_loss", "learning_rate", "tokens_per_second"} <= measured[0].keys()
    assert client.fine_tuning.jobs.checkpoints.list(job.id).data
    assert client.models.retrieve(job.fine_tuned_model).windlass["kind"] == "adapter"
    assert right(client, "my-base") == 0
    # Of 24, where the base knows none; the seed is anybody's.
    assert right(client, job.fine_tuned_model) >= 14

    shared = succeeded(client, scope["shared"])
    assert client.models.retrieve(shared.fine_tuned_model).windlass["kind"] == "adapter"
    full = succeeded(client, scope["full"])
    assert client.models.retrieve(full.fine_tuned_model).windlass["kind"] == "fine_tuned"
    answer = client.chat.completions.create(
        model=full.fine_tuned_model,
        messages=[{"role": "user", "content": split()[1][0].text}],
        max_tokens=8,
    )
    assert answer.model == full.fine_tuned_model


@pytest.mark.long
def test_what_preferences_make_answers(server: Windlass, tmp_path: Path) -> None:
    """True where it has learned, `test_torchtune.py` says."""
    write_files(tmp_path)
    client = server.openai()
    file = client.files.create(file=tmp_path / "pairs.jsonl", purpose="fine-tune")
    job = client.fine_tuning.jobs.create(
        model="my-base",
        training_file=file.id,
        method={"type": "dpo", "dpo": {"hyperparameters": {"n_epochs": 1}}},
        extra_body={"windlass": {"backend": "torchtune"}},
    )
    model = succeeded(client, job).fine_tuned_model
    question: Any = {"role": "user", "content": split()[1][0].text}
    answer = client.chat.completions.create(model=model, messages=[question], max_tokens=8)
    assert answer.choices[0].message.content


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({"config": {"optimizer._component_": "os.system"}}, "windlass.config"),
        ({"config": {"lora": False, "rank": 4}}, "windlass.config.rank"),
        ({"config": {"num_nodes": 2}}, "windlass.config.num_nodes"),
        ({"method": "kto"}, "windlass.method"),
    ],
)
def test_what_torchtune_cannot_do_names_its_field(
    server: Windlass, tmp_path: Path, asked: dict[str, Any], param: str
) -> None:
    client = server.openai()
    row: Any = split()[0][0].to_row()
    if asked.get("method") == "kto":
        question, answer = row["messages"]
        row = {"prompt": [question], "completion": [answer], "label": True}
    (tmp_path / "rows.jsonl").write_text(f"{json.dumps(row)}\n")
    file = client.files.create(file=tmp_path / "rows.jsonl", purpose="fine-tune")
    with pytest.raises(openai.BadRequestError) as refused:
        client.fine_tuning.jobs.create(
            model="my-base",
            training_file=file.id,
            extra_body={"windlass": {"backend": "torchtune", **asked}},
        )
    assert (refused.value.param or "").startswith(param)
