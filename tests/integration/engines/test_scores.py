"""Scores are those that transformers' own classifiers give."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from openai import AsyncOpenAI, BadRequestError
from peft import PeftModel
from tests.support.factories.toy_model import make_classifier, make_scoring_adapter
from tests.support.processes.engine import RunningEngine, running_engine
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from windlass_agent.engines.port import EngineControl

pytestmark = pytest.mark.torch
TEXTS = ["a", "the quick brown fox jumps", "red " * 40, *["fox"] * 8]
ASKED = {"role": "user", "content": "What does the fox do?"}
CHATS: list[list[dict[str, str]]] = [
    [ASKED, {"role": "assistant", "content": "It jumps."}],
    [ASKED, {"role": "assistant", "content": "It sleeps, as foxes do all day long."}],
]


class Judge:
    """A classifier, run by transformers one input at a time."""

    def __init__(self, network: Any, tokenizer: Any):
        self.network = network.eval()
        self.tokenizer = tokenizer

    def _score(self, ids: list[int]) -> float:
        with torch.no_grad():
            return float(self.network(torch.tensor([ids])).logits[0, 0])

    def text(self, text: str) -> float:
        return self._score(self.tokenizer.encode(text + self.tokenizer.eos_token))

    def chat(self, messages: list[dict[str, str]]) -> float:
        text = self.tokenizer.apply_chat_template(messages, tokenize=False)
        return self._score(self.tokenizer.encode(text, add_special_tokens=False))


@pytest.fixture(scope="module")
def scoring_adapter(toy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_scoring_adapter(toy, tmp_path_factory.mktemp("scoring") / "judge")


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_classifier(tmp_path_factory.mktemp("classifier") / "toy")


@pytest.fixture(scope="module")
def judges(classifier: Path) -> Iterator[RunningEngine]:
    with running_engine(classifier) as running:
        yield running


async def ask(client: AsyncOpenAI, model: str, given: Any) -> Any:
    return await client.post("/score", body={"model": model, "input": given}, cast_to=object)


def read(answer: Any) -> list[float]:
    assert answer["object"] == "list"
    assert [one["index"] for one in answer["data"]] == list(range(len(answer["data"])))
    return [one["score"] for one in answer["data"]]


async def test_an_adapter_scores_beside_those_that_write(
    client: AsyncOpenAI,
    control: EngineControl,
    toy: Path,
    adapters: dict[str, Path],
    scoring_adapter: Path,
) -> None:
    question: list[Any] = [ASKED]

    async def say(model: str) -> str:
        answer = await client.chat.completions.create(
            model=model, messages=question, temperature=0, max_tokens=8
        )
        return str(answer.choices[0].message.content)

    await control.load_adapter("one", adapters["one"])
    said = [await say("toy"), await say("one")]
    await control.load_adapter("judge", scoring_adapter)
    network = AutoModelForSequenceClassification.from_pretrained(toy, num_labels=1)
    judge = Judge(
        PeftModel.from_pretrained(network, scoring_adapter), AutoTokenizer.from_pretrained(toy)
    )
    answer = await ask(client, "judge", TEXTS)
    assert read(answer) == pytest.approx([judge.text(text) for text in TEXTS], abs=1e-3)
    counted = sum(len(judge.tokenizer.encode(text)) + 1 for text in TEXTS)
    assert answer["usage"] == {"prompt_tokens": counted, "total_tokens": counted}
    expected = [judge.chat(chat) for chat in CHATS]
    assert expected[0] != pytest.approx(expected[1], abs=1e-2)
    assert read(await ask(client, "judge", CHATS)) == pytest.approx(expected, abs=1e-3)
    assert read(await ask(client, "judge", CHATS[0])) == pytest.approx(expected[:1], abs=1e-3)
    assert [await say("toy"), await say("one")] == said


async def test_a_base_with_a_head_scores_and_writes_nothing(
    judges: RunningEngine, classifier: Path
) -> None:
    judge = Judge(
        AutoModelForSequenceClassification.from_pretrained(classifier),
        AutoTokenizer.from_pretrained(classifier),
    )
    async with judges.client() as client:
        expected = [judge.text(text) for text in TEXTS]
        assert read(await ask(client, judges.name, TEXTS)) == pytest.approx(expected, abs=1e-3)
        with pytest.raises(BadRequestError, match="/v1/score") as refused:
            await client.chat.completions.create(
                model=judges.name, messages=[{"role": "user", "content": "hello"}]
            )
        assert (refused.value.code, refused.value.param) == ("wrong_model_task", "model")


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ([], "input"),
        ("", "input"),
        ([CHATS[0], ASKED], "input"),
        ([3], "input[0]"),
        (["a", ""], "input[1]"),
        (["a", "fox " * 600], "input[1]"),
        ([[{"role": "robot", "content": "x"}]], "input[0][0].role"),
    ],
)
async def test_what_cannot_be_scored_is_refused_by_name(
    judges: RunningEngine, given: Any, param: str
) -> None:
    async with judges.client() as client:
        with pytest.raises(BadRequestError) as refused:
            await ask(client, judges.name, given)
    assert refused.value.param == param


async def test_a_model_that_writes_scores_nothing(client: AsyncOpenAI) -> None:
    with pytest.raises(BadRequestError, match="cannot score answers") as refused:
        await ask(client, "toy", "a")
    assert refused.value.code == "wrong_model_task"
