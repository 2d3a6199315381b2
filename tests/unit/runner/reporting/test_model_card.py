"""The card beside a model's weights."""

from pathlib import Path
from typing import Any

import yaml

from windlass_agent.runner.reporting.model_card import NAME, Data, ModelCard


def written(folder: Path, config: dict[str, Any], *, is_adapter: bool = True) -> str:
    card = ModelCard(
        job_id="ftjob-1",
        attempt=2,
        base_model="meta/tiny: yes",
        backend="trl",
        config=config,
        data=[Data("training", 12, "ab" * 32)],
    )
    card.write(folder, step=7, is_adapter=is_adapter, metrics={"train_loss": 0.123456789})
    return (folder / NAME).read_text()


def test_the_front_matter_is_what_hubs_read(tmp_path: Path) -> None:
    _, head, body = written(tmp_path, {}, is_adapter=False).split("---\n", 2)
    assert yaml.safe_load(head) == {
        "base_model": "meta/tiny: yes",
        "library_name": "transformers",
        "tags": ["windlass", "trl"],
    }
    assert "| `train_loss` | 0.123457 |" in body
    assert f"| training | 12 | `{'ab' * 32}` |" in body


def test_a_backends_secrets_stay_out(tmp_path: Path) -> None:
    secrets = {"hub_token": "s1", "wandb_api_key": "s2", "nested": [{"password": "s3"}]}
    kept = {"pad_token": "</s>", "max_tokens": 5, "hub_token_file": None}
    text = written(tmp_path, {**secrets, **kept})
    assert not any(value in text for value in ("s1", "s2", "s3"))
    assert '"pad_token": "</s>"' in text
    assert '"max_tokens": 5' in text


def test_it_takes_the_place_of_the_trainers_own(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("made in /home/somebody")
    assert "somebody" not in written(tmp_path, {})
