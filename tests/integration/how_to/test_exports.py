"""The how-to on exports, run as it is printed, by a whole server."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from tests.integration.how_to.test_scores import key_of_another_project
from tests.integration.how_to.test_training_methods import HI, succeeded, write_files
from tests.support.processes import pages
from tests.support.processes.windlass import NO_SPARE, Windlass, make_single, running

from windlass.client import Windlass as Client

pytestmark = pytest.mark.torch
PAGE = "how-to/export-a-model.md"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Iterator[Windlass]:
    with running(make_single(tmp_path_factory.mktemp("exports") / "data", NO_SPARE)) as made:
        with Client(made.url, made.owner_key) as client:
            client.models.import_folder("my-base", tiny_model)
        yield made


def test_the_page_on_exports_is_true(
    server: Windlass, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import gguf

    write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    client = server.openai()
    scope: dict[str, Any] = {"client": client}
    creation, use = pages.blocks(PAGE, "python")
    exec(creation, scope)
    job = scope["job"] = succeeded(client, scope["job"])
    exec(use, scope)

    name = f"{job.fine_tuned_model}:merged"
    assert scope["merged"].model == name
    listed = {model.id: model for model in client.models.list()}
    assert listed[name].windlass["kind"] == "fine_tuned"
    assert listed[job.fine_tuned_model].windlass["kind"] == "adapter"
    adapted = client.chat.completions.create(model=job.fine_tuned_model, messages=HI, temperature=0)
    assert scope["merged"].choices[0].message.content == adapted.choices[0].message.content

    assert next(file.filename for file in scope["results"]) == "step_metrics.csv"
    reader = gguf.GGUFReader(tmp_path / "model.gguf")
    assert reader.fields["general.name"].contents() == job.fine_tuned_model
    assert any(tensor.name == "token_embd.weight" for tensor in reader.tensors)

    other = server.openai(key_of_another_project(server))
    with pytest.raises(openai.NotFoundError):
        other.chat.completions.create(model=name, messages=HI)
    with pytest.raises(openai.NotFoundError):
        other.files.content(scope["gguf"].id)
    # It lives on without what it was made of.
    client.models.delete(job.fine_tuned_model)
    again = client.chat.completions.create(model=name, messages=HI, temperature=0)
    assert again.choices[0].message.content == adapted.choices[0].message.content


@pytest.mark.long
def test_a_merged_reward_model_scores_as_before(server: Windlass, tmp_path: Path) -> None:
    write_files(tmp_path)
    client = server.openai()
    file = client.files.create(file=tmp_path / "pairs.jsonl", purpose="fine-tune")
    job = client.fine_tuning.jobs.create(
        model="my-base",
        training_file=file.id,
        hyperparameters={"n_epochs": 1},
        extra_body={"windlass": {"method": "reward", "export": ["merged"]}},
    )
    model = succeeded(client, job).fine_tuned_model
    with Client(server.url, server.owner_key) as ours:
        texts = ["It is red.", "IT IS BLUE."]
        assert ours.score(f"{model}:merged", texts) == pytest.approx(
            ours.score(model, texts), abs=1e-3
        )


@pytest.mark.parametrize(
    "asked",
    [
        {"export": "merged"},
        {"export": ["onnx"]},
        {"export": [["merged"]]},
        {"export": ["gguf", "gguf"]},
        {"export": ["gguf"], "method": "reward"},
    ],
)
def test_a_form_that_does_not_exist_is_refused(
    server: Windlass, tmp_path: Path, asked: dict[str, Any]
) -> None:
    write_files(tmp_path)
    client = server.openai()
    name = "pairs.jsonl" if "method" in asked else "chat.jsonl"
    file = client.files.create(file=tmp_path / name, purpose="fine-tune")
    with pytest.raises(openai.BadRequestError) as refused:
        client.fine_tuning.jobs.create(
            model="my-base", training_file=file.id, extra_body={"windlass": asked}
        )
    assert str(refused.value.param).startswith("windlass.export")
