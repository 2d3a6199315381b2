"""Each type that embeds or scores is served, as a tiny random model; no job tunes one."""

from pathlib import Path

import pytest
import torch
from tests.integration.presets.conftest import Vllm
from tests.support.factories.families import make_scorer, make_vectors
from tests.support.processes.engine import running_engine
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from windlass.modelfiles.presets import shipped

pytestmark = [
    pytest.mark.torch,
    pytest.mark.vllm,
    pytest.mark.long,
    pytest.mark.timeout(1800),
]
TEXTS = ["the red cat sat on the mat", "a", "dog and fox " * 5]
QUERY = "what did the fox say"
# What vLLM says of a type that it does not serve: it looks for weights of Gemma 3 with images.
NOT_BY_VLLM = {("reward-model", "gemma3_text"): "no module or parameter named 'model'"}


def kinds(task: str) -> list[tuple[str, str]]:
    return [
        (name, model_type)
        for name, preset in shipped().items()
        if preset.task == task
        for model_type in preset.types
    ]


@pytest.mark.parametrize(("preset", "model_type"), kinds("embedding"))
def test_its_vectors_are_those_of_transformers(
    preset: str, model_type: str, vllm: Vllm, tmp_path: Path
) -> None:
    folder = make_vectors(tmp_path / "model", model_type)
    network = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    expected = []
    for text in TEXTS:
        with torch.no_grad():
            states = network(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
        vector = states[0 if preset == "encoder-embedder" else -1]
        expected.append(torch.nn.functional.normalize(vector, dim=0).tolist())
    with running_engine(folder) as running, running.http() as http:
        body = {"model": running.name, "input": TEXTS}
        answer = http.post("/v1/embeddings", json=body).raise_for_status().json()
    vectors = [item["embedding"] for item in answer["data"]]
    assert vectors == [pytest.approx(one, abs=1e-4) for one in expected]
    told = vllm.ask(folder, "embed", texts=TEXTS)
    if why := NOT_BY_VLLM.get((preset, model_type)):
        assert why in told["refused"]
    else:
        assert told == {"said": [pytest.approx(one, abs=1e-4) for one in expected]}


@pytest.mark.parametrize(("preset", "model_type"), kinds("scoring"))
def test_its_scores_are_those_of_transformers(
    preset: str, model_type: str, vllm: Vllm, tmp_path: Path
) -> None:
    folder = make_scorer(tmp_path / "model", model_type)
    network = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)

    def logit(*texts: str) -> float:
        with torch.no_grad():
            return float(network(**tokenizer(*texts, return_tensors="pt")).logits[0, 0])

    pairs = [float(torch.sigmoid(torch.tensor(logit(QUERY, text)))) for text in TEXTS]
    with running_engine(folder) as running, running.http() as http:
        if preset == "reranker":
            asked = {"query": QUERY, "documents": TEXTS}
            route, field, expected = "/v1/rerank", "relevance_score", pairs
        else:
            # A network that looks at the last token alone, which ends an answer.
            asked = {"input": TEXTS}
            route, field = "/v1/score", "score"
            expected = [logit(text + tokenizer.eos_token) for text in TEXTS]
        answer = http.post(route, json={"model": running.name, **asked}).raise_for_status().json()
    found = {one["index"]: one[field] for one in answer.get("results") or answer["data"]}
    assert [found[index] for index in range(len(TEXTS))] == pytest.approx(expected, abs=1e-3)
    told = vllm.ask(folder, "score", query=QUERY, texts=TEXTS)
    if why := NOT_BY_VLLM.get((preset, model_type)):
        assert why in told["refused"]
    else:
        assert told == {"said": pytest.approx(pairs, abs=1e-4)}
