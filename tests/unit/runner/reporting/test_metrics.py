"""One schema of metrics, and the table that documents it."""

import csv
import re
from pathlib import Path

import pytest

from windlass_agent.runner.reporting.metrics import SCHEMA, History, openai_values
from windlass_agent.runner.trainers.utilization import flops_per_token, peak_flops

PAGE = Path(__file__).parents[4] / "docs" / "reference" / "metrics.md"


def test_the_page_lists_the_schema() -> None:
    text = PAGE.read_text()
    rows = [line.split("|")[1] for line in text.split("## MFU")[0].splitlines() if "| `" in line]
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == SCHEMA


def test_a_trainers_names_become_the_schemas() -> None:
    values = openai_values(
        {"loss": 1.5, "eval_loss": 2.5, "rewards/margins": 0.1, "epoch": 1.0, "num_tokens": 9.0}
    )
    assert values == {
        "train_loss": 1.5,
        "valid_loss": 2.5,
        "full_valid_loss": 2.5,
        "train_reward_margin": 0.1,
    }


def test_the_mean_that_transformers_logs_last_is_not_a_steps_loss() -> None:
    assert openai_values({"train_loss": 2.5, "train_runtime": 3.0}) == {}


def test_a_step_is_a_row_with_empty_cells_where_nothing_is_known(tmp_path: Path) -> None:
    history = History()
    history.add(2, {"train_loss": 1.25})
    history.add(1, {"train_loss": 1.5, "train_mean_token_accuracy": 0.5, "grad_norm": 3.0})
    history.add(2, {"valid_loss": 2.0})
    history.write(tmp_path / "file.csv")
    with (tmp_path / "file.csv").open() as file:
        assert list(csv.reader(file)) == [
            ["step", "train_loss", "train_accuracy", "valid_loss", "valid_mean_token_accuracy"],
            ["1", "1.5", "0.5", "", ""],
            ["2", "1.25", "", "2.0", ""],
        ]
    assert history.at(1) == {"train_loss": 1.5, "train_mean_token_accuracy": 0.5}


def test_a_job_that_learns_from_rewards_has_their_columns_too(tmp_path: Path) -> None:
    history = History()
    history.add(1, {"train_loss": 0.5, "train_mean_reward": 0.25})
    history.add(2, {"train_mean_reward": 0.75, "valid_mean_reward": 0.5})
    history.write(tmp_path / "file.csv")
    with (tmp_path / "file.csv").open() as file:
        first, second = csv.DictReader(file)
    assert first == {
        "step": "1",
        "train_loss": "0.5",
        "train_accuracy": "",
        "valid_loss": "",
        "valid_mean_token_accuracy": "",
        "train_reward_mean": "0.25",
        "valid_reward_mean": "",
    }
    assert (second["train_reward_mean"], second["valid_reward_mean"]) == ("0.75", "0.5")


@pytest.mark.parametrize(
    ("device", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", 989.4e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA H200", 989.4e12),
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA A100-PCIE-40GB", 312e12),
        ("Tesla V100-SXM2-16GB", 125e12),
        ("NVIDIA L40S", 362e12),
        ("AMD Instinct MI300X", 1307.4e12),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None),
        ("NVIDIA GeForce GTX 1080", None),
        ("NVIDIA H2000", None),
        ("", None),
    ],
)
def test_a_device_has_the_peak_of_its_data_sheet(device: str, peak: float | None) -> None:
    assert peak_flops(device) == peak


def test_an_adapter_spares_the_operations_of_frozen_gradients() -> None:
    assert flops_per_token(1000, 1000) == 6000
    assert flops_per_token(1000, 10) == 4020
