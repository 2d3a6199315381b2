"""The how-to on embedders and rerankers, run as it is printed, on the built-in engine."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from tests.integration.how_to.test_scores import key_of_another_project
from tests.integration.how_to.test_training_methods import write_files
from tests.support.factories.encoders import make_embedder, make_reranker
from tests.support.processes import pages
from tests.support.processes.shell import PROGRAM, Shell
from tests.support.processes.windlass import NO_SPARE, Windlass, make_single, running
from tests.support.waiting import wait_until

from windlass.client import Windlass as Client

pytestmark = pytest.mark.torch
PAGE = "how-to/embed-and-rerank.md"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Windlass]:
    with running(make_single(tmp_path_factory.mktemp("encoders") / "data", NO_SPARE)) as made:
        yield made


@pytest.fixture(scope="module")
def printed(server: Windlass, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the page's commands print."""
    folder = tmp_path_factory.mktemp("page")
    make_embedder(folder / "e5-small", mode="mean_tokens", dense=8)
    make_reranker(folder / "bge-reranker")
    shell = Shell(server, folder)
    environment = shell.environment | shell.owner
    environment |= {"PATH": f"{Path(PROGRAM[0]).parent}:{environment['PATH']}"}
    return pages.run(pages.script(PAGE), environment, folder)


def used(server: Windlass) -> dict[tuple[str, str], int]:
    """Tokens that were read, by model and kind of use."""
    with server.http() as http:
        asked: dict[str, Any] = {
            "start_time": int(time.time()) - 3600,
            "group_by": ["model", "kind"],
        }
        answer = http.get("/v1/usage", params=asked).json()
    rows = [row for bucket in answer["data"] for row in bucket["results"]]
    return {(row["model"], row["kind"]): row["input_tokens"] for row in rows}


def test_the_page_is_true(server: Windlass, printed: str) -> None:
    assert "chat template" not in printed
    answer = json.loads(printed[printed.index("{") :])
    scores = [one["relevance_score"] for one in answer["results"]]
    assert len(scores) == 2
    assert scores == sorted(scores, reverse=True)
    client = server.openai()
    (block,) = pages.blocks(PAGE, "python")
    scope: dict[str, Any] = {"client": client}
    exec(block, scope)
    assert [len(vector) for vector in scope["vectors"]] == [8, 8]
    tasks = {one: client.models.retrieve(one).windlass["task"] for one in TASKS}
    assert tasks == TASKS
    tokens = scope["answer"].usage.prompt_tokens
    expected = {
        ("e5-small", "embedding"): tokens,
        ("bge-reranker", "score"): answer["usage"]["prompt_tokens"],
    }
    wait_until(lambda: used(server) == expected, "usage of both")


TASKS = {"e5-small": "embedding", "bge-reranker": "scoring"}


@pytest.mark.usefixtures("printed")
def test_each_does_its_own_task_alone(server: Windlass, tmp_path: Path) -> None:
    client = server.openai()
    question: Any = [{"role": "user", "content": "a"}]
    with pytest.raises(openai.BadRequestError, match="/v1/embeddings") as refused:
        client.chat.completions.create(model="e5-small", messages=question)
    assert (refused.value.code, refused.value.param) == ("wrong_model_task", "model")
    with pytest.raises(openai.BadRequestError, match="/v1/score"):
        client.embeddings.create(model="bge-reranker", input="a")
    with pytest.raises(openai.BadRequestError, match="/v1/embeddings"):
        client.post("/score", body={"model": "e5-small", "input": "a"}, cast_to=object)
    write_files(tmp_path)
    file = client.files.create(file=tmp_path / "pairs.jsonl", purpose="fine-tune")
    with pytest.raises(openai.BadRequestError, match="is an embedder") as refused:
        client.fine_tuning.jobs.create(model="e5-small", training_file=file.id)
    assert refused.value.code == "model_not_tunable"


@pytest.mark.usefixtures("printed")
def test_nobody_else_has_them(server: Windlass) -> None:
    other = server.openai(key_of_another_project(server))
    with pytest.raises(openai.NotFoundError):
        other.embeddings.create(model="e5-small", input="a")
    body = {"model": "bge-reranker", "query": "a", "documents": ["a"]}
    with pytest.raises(openai.NotFoundError):
        other.post("/rerank", body=body, cast_to=object)


def test_a_way_to_vectors_that_no_engine_has_is_refused(server: Windlass, tmp_path: Path) -> None:
    folder = make_embedder(tmp_path / "model", mode="max_tokens")
    with (
        Client(server.url, server.owner_key) as client,
        pytest.raises(ValueError, match="pooling_mode_max_tokens"),
    ):
        client.models.import_folder("strange", folder)
