"""The how-to on evaluation, run as it is printed by a whole server, with a grader and a command."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.how_to.test_training_methods import write
from tests.support.processes import pages
from tests.support.processes.windlass import NO_SPARE, Windlass, make_single, running

from windlass.client import Windlass as Client
from windlass.demo.questions import split

pytestmark = pytest.mark.torch
PAGE = "how-to/evaluate-a-model.md"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Iterator[Windlass]:
    with running(make_single(tmp_path_factory.mktemp("evaluated") / "data", NO_SPARE)) as made:
        with Client(made.url, made.owner_key) as client:
            client.models.import_folder("my-base", tiny_model)
        yield made


def test_the_page_on_evaluation_is_true(
    server: Windlass,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [question.to_row() for question in split()[0][:24]]
    write(tmp_path / "train.jsonl", rows[:16])
    write(tmp_path / "held-out.jsonl", rows[16:])
    monkeypatch.chdir(tmp_path)
    client = server.openai()
    scope: dict[str, Any] = {"client": client, "time": time}
    create, read, listing = pages.blocks(PAGE, "python")
    for block in (create, read, listing):
        exec(block, scope)
    assert scope["job"].status == "succeeded"
    asked = scope["evaluation"]
    result = asked["result"]
    (printed,) = pages.blocks(PAGE, "json")
    assert set(result) == set(json.loads(printed))
    assert result["examples"] == asked["max_examples"] == 8
    assert result["wins"] + result["ties"] + result["losses"] == 8
    assert asked["grader"]["name"] == "close"

    # What was printed: the result, and a line for each example.
    _, *lines = capsys.readouterr().out.strip().splitlines()
    answers = [json.loads(line) for line in lines if line]
    assert [row["line"] for row in answers] == list(range(1, 9))
    mean = sum(row["fine_tuned"]["reward"] for row in answers) / 8
    assert mean == pytest.approx(result["fine_tuned"]["mean_reward"])

    events = client.fine_tuning.jobs.list_events(scope["job"].id, limit=100)
    assert any("held-out examples, and" in event.message for event in events)
