"""The how-to on scores, run as it is printed: a job trains a reward model, and it answers."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from tests.integration.how_to.test_training_methods import succeeded, write_files
from tests.support.factories.toy_model import make_classifier
from tests.support.processes import pages
from tests.support.processes.shell import PROGRAM, Shell
from tests.support.processes.windlass import NO_SPARE, Windlass, make_single, running
from tests.support.waiting import wait_until

from windlass.client import Windlass as Client

pytestmark = pytest.mark.torch
PAGE = "how-to/score-answers.md"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Iterator[Windlass]:
    with running(make_single(tmp_path_factory.mktemp("scores") / "data", NO_SPARE)) as made:
        with Client(made.url, made.owner_key) as client:
            client.models.import_folder("my-base", tiny_model)
        yield made


def key_of_another_project(server: Windlass) -> str:
    with server.http() as http:
        project = http.post("/v1/projects", json={"title": "Others"}).json()["id"]
        body = {"name": "other", "role": "project_member", "project_id": project}
        return str(http.post("/v1/api_keys", json=body).json()["value"])


def scored(server: Windlass, model: str) -> int:
    """Requests that usage counts as scores."""
    with server.http() as http:
        answer = http.get(
            "/v1/usage",
            params={"start_time": int(time.time()) - 3600, "group_by": ["model", "kind"]},
        ).json()
    rows = [row for bucket in answer["data"] for row in bucket["results"]]
    return sum(
        row["num_model_requests"]
        for row in rows
        # A record of a request that was refused would have no tokens.
        if (row["model"], row["kind"]) == (model, "score") and row["input_tokens"] > 0
    )


def test_the_page_on_scores_is_true(
    server: Windlass, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    client = server.openai()
    scope: dict[str, Any] = {"client": client}
    for block in pages.blocks(PAGE, "python"):
        exec(block, scope)
    model = succeeded(client, scope["job"]).fine_tuned_model
    assert client.models.retrieve(model).windlass["task"] == "scoring"

    shell = Shell(server, tmp_path)
    environment = shell.environment | shell.owner
    environment |= {
        "PATH": f"{Path(PROGRAM[0]).parent}:{environment['PATH']}",
        "MODEL": model,
    }
    printed, *table = pages.run(pages.script(PAGE), environment, tmp_path).split("SCORE")
    answer = json.loads(printed)
    good, bad = (one["score"] for one in answer["data"])
    assert good > bad
    assert answer["usage"]["prompt_tokens"] > 0
    assert table[0].index("Your cat") < table[0].index("YOUR CAT")

    with Client(server.url, server.owner_key) as ours:
        pairs = [json.loads(line) for line in (tmp_path / "pairs.jsonl").read_text().splitlines()]
        asked = [
            [*pair["input"]["messages"], *pair[which]]
            for pair in pairs
            for which in ("preferred_output", "non_preferred_output")
        ]
        scores = ours.score(model, asked)
    better = [one > other for one, other in zip(scores[::2], scores[1::2], strict=True)]
    assert sum(better) >= 0.9 * len(better)

    with pytest.raises(openai.BadRequestError, match="/v1/score") as refused:
        client.chat.completions.create(model=model, messages=asked[0][:1])
    assert (refused.value.code, refused.value.param) == ("wrong_model_task", "model")
    with pytest.raises(openai.NotFoundError) as hidden:
        server.openai(key_of_another_project(server)).post(
            "/score", body={"model": model, "input": "Red."}, cast_to=object
        )
    assert hidden.value.code == "model_not_found"
    wait_until(lambda: scored(server, model) >= 3, "usage of three requests")


def test_a_model_that_writes_is_asked_for_no_score(server: Windlass) -> None:
    with pytest.raises(openai.BadRequestError, match="cannot score answers") as refused:
        server.openai().post("/score", body={"model": "my-base", "input": "a"}, cast_to=object)
    assert (refused.value.code, refused.value.param) == ("wrong_model_task", "model")


def test_an_imported_classifier_scores_and_cannot_be_tuned(
    server: Windlass, tmp_path: Path
) -> None:
    write_files(tmp_path)
    with Client(server.url, server.owner_key) as client:
        made = client.models.import_folder("judge", make_classifier(tmp_path / "judge"))
        assert made["windlass"]["task"] == "scoring"
        assert len(client.score("judge", ["It is red.", "It is blue."])) == 2
    asked = server.openai()
    file = asked.files.create(file=tmp_path / "pairs.jsonl", purpose="fine-tune")
    with pytest.raises(openai.BadRequestError) as refused:
        asked.fine_tuning.jobs.create(
            model="judge",
            training_file=file.id,
            extra_body={"windlass": {"method": "reward"}},
        )
    assert refused.value.code == "model_not_tunable"
