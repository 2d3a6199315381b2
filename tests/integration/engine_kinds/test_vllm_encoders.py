"""vLLM embeds and ranks as the built-in engine does, with its build for CPUs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from tests.support.environments.vllm_env import turn, vllm_python
from tests.support.factories.encoders import RAW_SCORES, make_embedder, make_reranker
from tests.support.processes.windlass import NO_SPARE, Windlass, make_single, running
from transformers import AutoTokenizer

from windlass.client import Windlass as Client
from windlass_agent.engines.builtin.generation.loading import load_model

pytestmark = [
    pytest.mark.torch,
    pytest.mark.vllm,
    pytest.mark.long,
    pytest.mark.timeout(1800),
]
START_SECONDS = 600.0
TEXTS = ["the red cat sat on the mat", "a", "dog and fox " * 5]
QUERY = "what did the fox say"
SET: dict[str, Any] = {"dtype": "float32", "eager": True}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("models")
    return {
        "e5": make_embedder(home / "e5", mode="mean_tokens", dense=8),
        "bare": make_embedder(home / "bare", modules=False),
        "rank": make_reranker(home / "rank"),
        "raw": make_reranker(home / "raw", sentence_transformers=RAW_SCORES),
        "writer": tiny_model,
    }


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, folders: dict[str, Path]
) -> Iterator[Windlass]:
    settings: dict[str, Any] = {
        "inference": {"hold_seconds": START_SECONDS, "max_engines": 3},
        "agent": {**NO_SPARE["agent"], "vllm_python": str(vllm_python())},
    }
    root = tmp_path_factory.mktemp("vllm")
    with turn(), running(make_single(root / "data", settings)) as made:
        with Client(made.url, made.owner_key) as client:
            for name, folder in folders.items():
                client.models.import_folder(name, folder)
        yield made


@pytest.fixture
def ask(server: Windlass, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A client of the model that the test names, whose engine is vLLM's while it runs."""
    name, arguments = request.param
    with server.http() as http:
        body = {"engine": "vllm", "min_replicas": 0, "arguments": SET | arguments}
        http.put(f"/v1/servings/{name}", json=body).raise_for_status()
        yield server.openai(max_retries=0, timeout=START_SECONDS)
        engines = http.get("/v1/engines").raise_for_status().json()["data"]
        assert {one["engine"] for one in engines if one["model"] == name} == {"vllm"}


@pytest.mark.parametrize("ask", [("e5", {})], indirect=True)
def test_an_embedder_has_the_same_vectors(ask: Any, folders: dict[str, Path]) -> None:
    answer = ask.embeddings.create(model="e5", input=TEXTS)
    check_vectors(folders["e5"], answer)
    with pytest.raises(openai.BadRequestError) as refused:
        ask.chat.completions.create(model="e5", messages=[{"role": "user", "content": "a"}])
    assert refused.value.code == "wrong_model_task"
    ranked = ask.post("/rerank", body=rerank("e5"), cast_to=object)
    assert len(ranked["results"]) == len(TEXTS)


@pytest.mark.parametrize("ask", [("bare", {})], indirect=True)
def test_an_encoder_without_a_word_on_it_has_the_same_means(
    ask: Any, folders: dict[str, Path]
) -> None:
    check_vectors(folders["bare"], ask.embeddings.create(model="bare", input=TEXTS))


@pytest.mark.parametrize(
    ("ask", "name"), [(("rank", {}), "rank"), (("raw", {}), "raw")], indirect=["ask"]
)
def test_a_reranker_has_the_same_scores(ask: Any, server: Windlass, name: str) -> None:
    ranked = ask.post("/rerank", body=rerank(name), cast_to=object)
    path = f"/v1/servings/{name}"
    with server.http() as http:
        http.put(path, json={"engine": "builtin"}).raise_for_status()
        ours = ask.post("/rerank", body=rerank(name), cast_to=object)
        http.put(path, json={"engine": "vllm", "arguments": SET}).raise_for_status()
    assert scores(ranked) == pytest.approx(scores(ours), abs=1e-4)
    assert all(0 <= one <= 1 for one in scores(ours)) == (name == "rank")
    assert ranked["usage"]["prompt_tokens"] == ours["usage"]["prompt_tokens"]
    ask.post("/rerank", body=rerank(name), cast_to=object)


@pytest.mark.parametrize("ask", [("writer", {"task": "embed"})], indirect=True)
def test_a_model_that_writes_embeds_where_it_is_set_to(ask: Any) -> None:
    answer = ask.embeddings.create(model="writer", input=TEXTS)
    assert all(sum(one * one for one in item.embedding) == pytest.approx(1) for item in answer.data)
    with pytest.raises(openai.NotFoundError, match="does not support"):
        ask.chat.completions.create(model="writer", messages=[{"role": "user", "content": "a"}])


def rerank(model: str) -> dict[str, Any]:
    return {"model": model, "query": QUERY, "documents": TEXTS}


def scores(answer: Any) -> list[float]:
    found = {one["index"]: one["relevance_score"] for one in answer["results"]}
    return [found[index] for index in range(len(TEXTS))]


def check_vectors(folder: Path, answer: Any) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    inputs = [tokenizer(text).input_ids for text in TEXTS]
    expected = load_model(folder, name="ours").embed(inputs)
    for item, vector in zip(answer.data, expected, strict=True):
        assert item.embedding == pytest.approx(vector, abs=1e-4)
    assert answer.usage.prompt_tokens == sum(map(len, inputs))
