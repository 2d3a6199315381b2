"""Embedders and rerankers give what transformers gives, by the files of sentence-transformers."""

import asyncio
import json
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from openai import BadRequestError
from safetensors.torch import save_file
from tests.support.factories.encoders import (
    CONTEXT,
    RAW_SCORES,
    make_embedder,
    make_reranker,
    make_tokenizer,
)
from tests.support.processes.engine import RunningEngine, running_engine
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    RobertaConfig,
    RobertaModel,
)

from windlass_agent.engines.builtin.generation.adapter_weights import AdapterWeights
from windlass_agent.engines.builtin.generation.loading import UnsupportedModel, load_model
from windlass_agent.engines.builtin.generation.metrics import EngineMetrics
from windlass_agent.engines.builtin.generation.scheduler import SequenceScheduler

pytestmark = pytest.mark.torch
TEXTS = ["a", "the red cat sat on the mat", "dog and fox " * 6, *["blue"] * 8]


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEngine]:
    folder = make_embedder(tmp_path_factory.mktemp("embedder") / "model", mode="cls_token")
    with running_engine(folder, name="e5") as running:
        yield running


@pytest.fixture(scope="module")
def reranker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEngine]:
    with running_engine(make_reranker(tmp_path_factory.mktemp("rank") / "model")) as running:
        yield running


def hidden(folder: Path, text: str) -> torch.Tensor:
    """The last hidden states of a text, computed alone."""
    from transformers import AutoModel

    network = AutoModel.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        states: torch.Tensor = network(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
    return states


async def test_an_embedder_answers_with_its_own_vectors(embedder: RunningEngine) -> None:
    client = embedder.client()
    answer = await client.embeddings.create(model="e5", input=TEXTS, encoding_format="float")
    for text, item in zip(TEXTS, answer.data, strict=True):
        expected = torch.nn.functional.normalize(hidden(embedder.model, text)[0], dim=0).tolist()
        assert item.embedding == pytest.approx(expected, abs=1e-4)
    tokenizer = AutoTokenizer.from_pretrained(embedder.model)
    assert answer.usage.prompt_tokens == sum(len(tokenizer(text).input_ids) for text in TEXTS)


async def test_it_writes_nothing(embedder: RunningEngine) -> None:
    client = embedder.client()
    question: Any = [{"role": "user", "content": "a"}]
    with pytest.raises(BadRequestError, match="is an embedder") as refusal:
        await client.chat.completions.create(model="e5", messages=question)
    assert refusal.value.code == "wrong_model_task"
    with pytest.raises(BadRequestError, match="is an embedder"):
        await client.completions.create(model="e5", prompt="a")
    with pytest.raises(BadRequestError) as refusal:
        await client.embeddings.create(model="e5", input="cat " * CONTEXT)
    assert refusal.value.code == "context_length_exceeded"


@pytest.mark.parametrize(
    ("mode", "normalize", "dense"),
    [("mean_tokens", False, 0), ("lasttoken", True, 0), ("mean_tokens", True, 8)],
)
def test_every_way_to_a_vector_is_the_folder_s_own(
    tmp_path: Path, mode: str, normalize: bool, dense: int
) -> None:
    folder = make_embedder(tmp_path / "model", mode=mode, normalize=normalize, dense=dense)
    model = load_model(folder, name="e5")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    found = model.embed([tokenizer(text).input_ids for text in TEXTS])
    for text, vector in zip(TEXTS, found, strict=True):
        states = hidden(folder, text)
        expected = states[-1] if mode == "lasttoken" else states.mean(0)
        if dense:
            from safetensors.torch import load_file

            layer = load_file(folder / "2_Dense" / "model.safetensors")
            expected = torch.tanh(layer["linear.weight"] @ expected + layer["linear.bias"])
        if normalize:
            expected = torch.nn.functional.normalize(expected, dim=0)
        assert vector == pytest.approx(expected.tolist(), abs=1e-4)


def test_an_encoder_without_a_word_on_it_makes_means(tmp_path: Path) -> None:
    folder = make_embedder(tmp_path / "model", modules=False)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    (found,) = load_model(folder, name="bare").embed([tokenizer(TEXTS[1]).input_ids])
    expected = torch.nn.functional.normalize(hidden(folder, TEXTS[1]).mean(0), dim=0)
    assert found == pytest.approx(expected.tolist(), abs=1e-4)


def test_a_way_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    folder = make_embedder(tmp_path / "model", mode="max_tokens")
    with pytest.raises(UnsupportedModel, match="pooling_mode_max_tokens"):
        load_model(folder, name="e5")


def test_positions_that_begin_after_that_of_padding_make_the_longest_input_shorter(
    tmp_path: Path,
) -> None:
    config = RobertaConfig(
        vocab_size=30, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=CONTEXT, pad_token_id=1,
    )  # fmt: skip
    RobertaModel(config).save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    loaded = load_model(tmp_path, name="roberta")
    assert loaded.context_length == CONTEXT - 2
    (vector,) = loaded.embed([[5] * loaded.context_length])
    assert len(vector) == 32


@pytest.mark.parametrize("wrong", ["width", "bias", "names"])
def test_a_layer_that_does_not_fit_is_refused_when_the_model_is_loaded(
    tmp_path: Path, wrong: str
) -> None:
    folder = make_embedder(tmp_path / "model", mode="mean_tokens", dense=8)
    tensors = {"linear.weight": torch.randn(8, 64), "linear.bias": torch.randn(8)}
    if wrong == "width":
        tensors["linear.weight"] = torch.randn(8, 63)
    elif wrong == "bias":
        tensors["linear.bias"] = torch.randn(9)
    else:
        del tensors["linear.bias"]
    save_file(tensors, folder / "2_Dense" / "model.safetensors")
    with pytest.raises(UnsupportedModel, match="2_Dense"):
        load_model(folder, name="e5")


def test_an_encoder_with_a_decoder_beside_it_is_refused(tmp_path: Path) -> None:
    folder = make_embedder(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"is_encoder_decoder": True}))
    with pytest.raises(UnsupportedModel, match="decoder"):
        load_model(folder, name="t5")


def test_a_classifier_says_the_same_of_a_text_beside_longer_ones(tmp_path: Path) -> None:
    folder = make_reranker(tmp_path / "model")
    loaded = load_model(folder, name="rank")
    short, long = [2, 5, 3], [2, *[6] * 20, 3]
    for padding in (0, 1, None):
        loaded.network.config.pad_token_id = padding
        alone = loaded.classify([short])
        assert loaded.classify([short, long])[0] == pytest.approx(alone[0], abs=1e-5)


async def test_passes_of_clients_that_have_left_are_not_made(tmp_path: Path) -> None:
    loaded = load_model(make_embedder(tmp_path / "model"), name="e5")
    scheduler = SequenceScheduler(
        loaded, AdapterWeights(loaded), max_concurrency=1, max_waiting=1, metrics=EngineMetrics()
    )
    begun, over = threading.Event(), threading.Event()
    made: list[int] = []

    def first() -> None:
        begun.set()
        over.wait()

    ends: list[str] = []
    running = asyncio.create_task(scheduler.call(first, lambda: ends.append("first")))
    await asyncio.to_thread(begun.wait)
    left = [
        asyncio.create_task(scheduler.call(lambda: made.append(1), lambda: ends.append("left")))
        for _ in range(20)
    ]
    await asyncio.sleep(0)
    for one in (running, *left):
        one.cancel()
    await asyncio.gather(running, *left, return_exceptions=True)
    assert not ends, "the first pass runs on"
    over.set()
    assert await scheduler.call(lambda: 5) == 5
    assert (made, ends) == ([], ["first", *["left"] * 20])
    await scheduler.stop()


QUERY = "what did the fox say"
DOCUMENTS = ["the red cat slept", "fox and dog", "a green mat " * 3, *["blue"] * 8]


def ranked(engine: RunningEngine, **asked: Any) -> Any:
    body = {"model": engine.name, "query": QUERY, "documents": DOCUMENTS, **asked}
    with engine.http() as http:
        return http.post("/v1/rerank", json=body)


def test_a_cross_encoder_ranks_pairs(reranker: RunningEngine) -> None:
    network = AutoModelForSequenceClassification.from_pretrained(reranker.model).eval()
    tokenizer = AutoTokenizer.from_pretrained(reranker.model)
    expected, tokens = [], 0
    for text in DOCUMENTS:
        pair = tokenizer(QUERY, text, return_tensors="pt")
        tokens += pair.input_ids.shape[1]
        with torch.no_grad():
            expected.append(float(torch.sigmoid(network(**pair).logits[0, 0])))
    answer = ranked(reranker).raise_for_status().json()
    found = {one["index"]: one["relevance_score"] for one in answer["results"]}
    assert [found[index] for index in range(len(DOCUMENTS))] == pytest.approx(expected, abs=1e-4)
    scores = [one["relevance_score"] for one in answer["results"]]
    assert scores == sorted(scores, reverse=True)
    assert answer["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
    first = ranked(reranker, top_n=1).json()["results"]
    assert first == answer["results"][:1]
    assert first[0]["document"] == {"text": DOCUMENTS[first[0]["index"]]}


async def test_scores_of_a_reranker_are_what_its_files_say(tmp_path: Path) -> None:
    plain = load_model(make_reranker(tmp_path / "plain"), name="plain")
    folder = make_reranker(tmp_path / "raw", sentence_transformers=RAW_SCORES)
    raw = load_model(folder, name="raw")
    found = []
    for model in (plain, raw):
        scheduler = SequenceScheduler(
            model, AdapterWeights(model), max_concurrency=1, max_waiting=1, metrics=EngineMetrics()
        )
        pairs = [await model.tokenizer.pair(QUERY, text) for text in DOCUMENTS]
        found.append(await scheduler.call(partial(scheduler.classify, pairs)))
        await scheduler.stop()
    assert found[0] == pytest.approx(torch.tensor(found[1]).sigmoid().tolist(), abs=1e-5)
    assert any(not 0 <= one <= 1 for one in found[1])


def test_an_embedder_ranks_by_its_vectors(embedder: RunningEngine) -> None:
    query = hidden(embedder.model, QUERY)[0]
    answer = ranked(embedder).raise_for_status().json()
    for one in answer["results"]:
        text = hidden(embedder.model, DOCUMENTS[one["index"]])[0]
        expected = float(torch.nn.functional.cosine_similarity(query, text, dim=0))
        assert one["relevance_score"] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("changed", "param"),
    [
        ({"query": ""}, "query"),
        ({"documents": []}, "documents"),
        ({"documents": ["a"] * 3000}, "documents"),
        ({"documents": ["a", 3]}, "documents[1]"),
        ({"documents": ["a", "cat " * CONTEXT]}, "documents[1]"),
        ({"query": "cat " * CONTEXT}, "query"),
        ({"top_n": 0}, "top_n"),
        ({"rank_fields": []}, "rank_fields"),
    ],
)
def test_what_cannot_be_ranked_is_refused_by_name(
    reranker: RunningEngine, changed: dict[str, Any], param: str
) -> None:
    answer: httpx.Response = ranked(reranker, **changed)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
