"""KEP-2839's recipes on a GPU, with a model of your own: `make e2e-gpu MODEL=folder`.

Llama 3.2 1B (Instruct, which has a chat template) on Alpaca is what they are made for: `MODEL` is
its folder, `DATA` Stanford's `alpaca_data.json`. Any other model that the backends know does too.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.gpu import recipes
from tests.support.processes.windlass import Windlass, make_single, running

from windlass.client import Windlass as Client

pytestmark = [pytest.mark.torch, pytest.mark.gpu, pytest.mark.timeout(4 * 3600)]
STEPS = 100
HI: list[Any] = [{"role": "user", "content": "Name the three primary colors."}]


@pytest.fixture(scope="module")
def server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Windlass]:
    # Where there is one GPU, a job has it once the engine of the test before has ended.
    settings = {"inference": {"hold_seconds": 600, "idle_seconds": 5}, "jobs": {"default_gpus": 1}}
    with running(make_single(tmp_path_factory.mktemp("gpu") / "data", settings)) as made:
        with Client(made.url, made.owner_key) as client:
            client.models.import_folder("base", model)
        yield made


def test_supervised_on_alpaca(
    server: Windlass, chats: list[dict[str, Any]], tmp_path: Path
) -> None:
    client = server.openai(timeout=900)
    job = recipes.train(
        client,
        recipes.write(tmp_path / "alpaca.jsonl", chats),
        model="base",
        seed=1,
        extra_body={"windlass": {"config": {"max_steps": STEPS, "max_length": 512}}},
    )
    first, last = recipes.ends(recipes.measured(client, job, "train_loss"))
    assert last < 0.95 * first
    answer = client.chat.completions.create(model=job.fine_tuned_model, messages=HI, max_tokens=64)
    assert answer.choices[0].message.content


def test_preferences(server: Windlass, chats: list[dict[str, Any]], tmp_path: Path) -> None:
    client = server.openai(timeout=900)
    job = recipes.train(
        client,
        recipes.write(tmp_path / "pairs.jsonl", list(recipes.preferences(chats))),
        model="base",
        seed=1,
        method={"type": "dpo", "dpo": {"hyperparameters": {"beta": 0.1}}},
        extra_body={"windlass": {"config": {"max_steps": STEPS, "max_length": 512}}},
    )
    first, last = recipes.ends(recipes.measured(client, job, "train_reward_margin"))
    assert last > max(first, 0)
    assert recipes.ends(recipes.measured(client, job, "train_reward_accuracy"))[1] > 0.6
    answer = client.chat.completions.create(model=job.fine_tuned_model, messages=HI, max_tokens=64)
    assert answer.choices[0].message.content


def test_torchtune_trains_what_trl_trains(
    server: Windlass, chats: list[dict[str, Any]], tmp_path: Path
) -> None:
    client = server.openai(timeout=900)
    file = recipes.write(tmp_path / "alpaca.jsonl", chats)
    losses = {}
    for backend in ("torchtune", "trl"):
        job = recipes.train(
            client,
            file,
            model="base",
            seed=1,
            hyperparameters={"n_epochs": 1, "batch_size": 8},
            extra_body={"windlass": {"backend": backend}},
        )
        first, losses[backend] = recipes.ends(recipes.measured(client, job, "train_loss"))
        assert losses[backend] < first
    # Other layers get an adapter, so that the two are near each other and not the same.
    assert losses["torchtune"] == pytest.approx(losses["trl"], rel=0.25)
