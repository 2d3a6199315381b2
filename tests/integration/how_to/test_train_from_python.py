"""The how-to on typed training, run as it is printed, against a whole server."""

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.how_to.test_scores import key_of_another_project
from tests.integration.how_to.test_training_methods import HI, write_files
from tests.support.processes import pages
from tests.support.processes.windlass import NO_SPARE, make_single, running
from tests.support.processes.windlass import Windlass as Server

from windlass.backends import BuiltinTrainer, TRLConfig, TRLDPOConfig, TRLPeftConfig, TRLTrainerType
from windlass.client import Windlass, WindlassError

pytestmark = pytest.mark.torch
SFT = {"trainer_type": "sft"}
PAGE = "how-to/train-from-python.md"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Iterator[Server]:
    with running(make_single(tmp_path_factory.mktemp("typed") / "data", NO_SPARE)) as made:
        with Windlass(made.url, made.owner_key) as client:
            client.models.import_folder("my-base", tiny_model)
        yield made


@pytest.fixture
def client(server: Server) -> Iterator[Windlass]:
    with Windlass(server.url, server.owner_key) as client:
        yield client


def test_the_page_on_typed_training_is_true(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {"base_url": server.url, "api_key": server.owner_key}
    said = []
    for block in pages.blocks(PAGE, "python"):
        with contextlib.redirect_stdout(io.StringIO()) as output:
            exec(block, scope)
        said.append(output.getvalue())
    listed, logged, refused = said
    assert listed.startswith("torchtune") or "\ntrl ('supervised', 'dpo'" in f"\n{listed}"
    assert "Training completed" in logged
    assert logged.splitlines()[-1] == f"succeeded {scope['done']['fine_tuned_model']}"
    assert refused.strip() == "windlass.document.learning_rate"

    job, client = scope["done"], scope["windlass"]
    assert (job["seed"], job["user_provided_suffix"]) == (7, "typed")
    assert (job["method"]["type"], job["windlass"]["backend"]) == ("supervised", "trl")
    losses = [
        event["data"]["step"]
        for event in client.get_job_events(job["id"])
        if event["type"] == "metrics" and "train_loss" in event["data"]
    ]
    # 16 examples, 4 at a time, once: what the configuration says, and nothing of "auto".
    assert losses == [1, 2, 3, 4]
    answer = client.openai.chat.completions.create(
        model=job["fine_tuned_model"], messages=HI, max_tokens=8
    )
    assert answer.choices[0].message.content


def test_what_the_platform_has_to_say_is_refused_here(client: Windlass, tmp_path: Path) -> None:
    from windlass.backends import InvalidConfig

    write_files(tmp_path)
    trainer = BuiltinTrainer(TRLConfig(output_dir="/somewhere"))
    with pytest.raises(InvalidConfig, match="platform"):
        client.train(trainer, model="my-base", training_file=tmp_path / "chat.jsonl")
    with pytest.raises(ValueError, match="'torchtune' does not support TRLConfig"):
        client.train(
            BuiltinTrainer(TRLConfig()), model="my-base", training_file="f", runtime="torchtune"
        )
    with pytest.raises(LookupError, match=r"offers 'mlx'.* trl"):
        client.get_runtime("mlx")


def test_a_job_is_waited_for_no_longer_than_asked(client: Windlass, tmp_path: Path) -> None:
    write_files(tmp_path)
    trainer = BuiltinTrainer(
        TRLConfig(
            trainer_type=TRLTrainerType.DPO,
            num_train_epochs=50,
            peft_config=TRLPeftConfig(),
            dpo_config=TRLDPOConfig(beta=0.3),
            resources_per_node={"cpu": 1, "memory": "1Gi"},
        )
    )
    job = client.train(trainer, model="my-base", training_file=tmp_path / "pairs.jsonl")
    assert job["method"]["type"] == "dpo"
    with pytest.raises(TimeoutError, match=r"after 0\.1 s"):
        client.wait_for_job(job["id"], timeout=0.1)
    client.jobs.act(job["id"], "cancel")
    assert client.wait_for_job(job["id"])["status"] == "cancelled"


@pytest.mark.parametrize(
    ("windlass", "more", "param"),
    [
        ({"document": []}, {}, "windlass.document"),
        ({"schema_version": 1}, {}, "windlass.document"),
        ({"document": SFT, "schema_version": "1"}, {}, "windlass.schema_version"),
        ({"document": SFT, "schema_version": 9}, {}, "windlass.schema_version"),
        ({"document": SFT | {"output_dir": "/x"}}, {}, "windlass.document.output_dir"),
        # What is missing has no path: the sentence names it.
        ({"document": SFT}, {}, "windlass.document"),
        ({"document": {"trainer_type": "ppo"}}, {}, "windlass.document.trainer_type"),
        (
            {
                "document": {
                    "trainer_type": "kto",
                    "learning_rate": 1e-4,
                    "seed": 1,
                    "batch_size": 1,
                }
            },
            {},
            "windlass.document.per_device_train_batch_size",
        ),
        ({"document": SFT, "config": {"rank": 2}}, {}, "windlass.document"),
        ({"document": SFT, "method": "kto"}, {}, "windlass.document"),
        ({"document": SFT, "runtime": "mlx"}, {}, "windlass.runtime"),
        (
            {"document": SFT},
            {"hyperparameters": {"n_epochs": 1}},
            "method",
        ),
        (
            {"document": SFT | {"learning_rate": 1e-4, "seed": 3}},
            {"seed": 4},
            "seed",
        ),
    ],
)
def test_a_document_that_is_not_sound_is_refused_by_name(
    client: Windlass, tmp_path: Path, windlass: dict[str, Any], more: dict[str, Any], param: str
) -> None:
    write_files(tmp_path)
    file = client.files.upload(tmp_path / "chat.jsonl")["id"]
    with pytest.raises(WindlassError) as refused:
        client.jobs.create(
            {"model": "my-base", "training_file": file, "windlass": windlass, **more}
        )
    assert refused.value.param == param


def test_another_project_sees_its_runtimes_and_no_job(server: Server, client: Windlass) -> None:
    key = key_of_another_project(server)
    with Windlass(server.url, key) as other:
        assert other.list_runtimes() == client.list_runtimes()
        for job in client.pages("/v1/fine_tuning/jobs"):
            with pytest.raises(WindlassError):
                next(other.get_job_logs(job["id"]))
