"""vLLM on a GPU serves a model of yours and the adapters that jobs make of it.

`make e2e-gpu MODEL=folder VLLM_PYTHON=interpreter`, of an environment that has vLLM. Where the
machine has one GPU, the engine sleeps while a job has it.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.gpu import recipes
from tests.integration.engine_kinds.page import engines
from tests.support.processes.windlass import Windlass, make_single, running
from tests.support.waiting import wait_until

from windlass.client import Windlass as Client

pytestmark = [pytest.mark.torch, pytest.mark.gpu, pytest.mark.timeout(2 * 3600)]
SECONDS = 1800.0
SLEEP_SECONDS = 30
STEPS = 30
ASKED: list[Any] = [{"role": "user", "content": "Name the three primary colors."}]


@pytest.fixture(scope="module")
def interpreter() -> str:
    """The interpreter that has vLLM."""
    found = os.environ.get("E2E_VLLM_PYTHON") or ""
    if not Path(found).is_file():
        pytest.skip("It needs vLLM: make e2e-gpu VLLM_PYTHON=interpreter that has it.")
    return found


@pytest.fixture(scope="module")
def server(
    model: Path, interpreter: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Windlass]:
    settings: dict[str, Any] = {
        "inference": {"hold_seconds": SECONDS},
        "agent": {"vllm_python": interpreter},
        "jobs": {"default_gpus": 1},
    }
    with running(make_single(tmp_path_factory.mktemp("vllm-gpu") / "data", settings)) as made:
        with Client(made.url, made.owner_key) as client:
            client.models.import_folder("base", model)
        yield made


@pytest.fixture(scope="module")
def engine(server: Windlass) -> psutil.Process:
    """The engine that answers for the model."""
    asked = {"engine": "vllm", "min_replicas": 1, "sleep_seconds": SLEEP_SECONDS, "gpus": 1}
    with server.http() as http:
        http.put("/v1/servings/base", json=asked).raise_for_status()
    assert said(server, "base")
    (found,) = engines(server, "vllm.entrypoints")
    return found


def said(server: Windlass, model: str) -> str:
    client = server.openai(timeout=SECONDS)
    answer = client.chat.completions.create(
        model=model, messages=ASKED, max_tokens=48, temperature=0
    )
    assert answer.model == model
    assert answer.usage.completion_tokens > 0
    return str(answer.choices[0].message.content)


def phase(server: Windlass) -> str:
    with server.http() as http:
        rows = http.get("/v1/engines").raise_for_status().json()["data"]
    return str(next(row["phase"] for row in rows if row["model"] == "base"))


def test_it_streams_and_counts(server: Windlass, engine: psutil.Process) -> None:
    stream = server.openai(timeout=SECONDS).chat.completions.create(
        model="base",
        messages=ASKED,
        max_tokens=64,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"ignore_eos": True},
    )
    *chunks, last = list(stream)
    assert last.usage.completion_tokens == 64
    assert len([chunk for chunk in chunks if chunk.choices]) > 8
    assert engine.is_running()


def test_what_a_job_made_answers_as_an_adapter_of_the_engine_that_slept(
    server: Windlass, engine: psutil.Process, chats: list[dict[str, Any]], tmp_path: Path
) -> None:
    before = said(server, "base")
    wait_until(lambda: phase(server) == "sleeping", seconds=SLEEP_SECONDS + 120)
    job = recipes.train(
        server.openai(timeout=SECONDS),
        recipes.write(tmp_path / "chats.jsonl", chats),
        model="base",
        seed=1,
        extra_body={"windlass": {"config": {"max_steps": STEPS, "max_length": 512}}},
    )
    assert said(server, job.fine_tuned_model)
    assert said(server, "base") == before
    assert [one.pid for one in engines(server, "vllm.entrypoints")] == [engine.pid]
