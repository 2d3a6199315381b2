"""`docs/reference/hyperparameters.md` says what the code does."""

from pathlib import Path

import msgspec
import pytest

from windlass.backends import Sizing, methods
from windlass.backends.hyperparameters import (
    MAX_AUTO_EPOCHS,
    MAX_AUTO_EXAMPLES,
    MAX_LEARNING_RATE,
    METHODS,
    SMALL_MODEL_BYTES,
    learning_rate,
)
from windlass.backends.trl.config import TRLConfig
from windlass.backends.trl.document import TRLTraining
from windlass.backends.trl.extra import TRLSettings

PAGE = (Path(__file__).parents[3] / "docs/reference/hyperparameters.md").read_text()
UNITS = {"GB": 10**9}


def table(heading: str) -> list[list[str]]:
    """The rows under a table's first heading, their cells without marks."""
    _, _, after = PAGE.partition(f"| {heading} |")
    lines = after.split("\n\n")[0].splitlines()[2:]
    return [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines]


RATES = table("Method | LoRA: rate at 14 GB | exponent | Full: rate at 14 GB | exponent")
EXAMPLES = table("Method | Examples | Model | `n_epochs` | `batch_size` | learning rate")


def test_every_method_has_its_rates() -> None:
    every = [*methods.OPENAI, *methods.OURS, "rloo"]
    assert [row[0] for row in RATES] == list(METHODS) == every
    for name, *numbers in RATES:
        given = [float(number) for number in numbers]
        for lora, (rate, exponent) in ((True, given[:2]), (False, given[2:])):
            for size in (3_000_000_000, 14_000_000_000, 140_000_000_000):
                sizing = Sizing(examples=1000, model_bytes=size)
                said = min(rate * (14e9 / size) ** exponent, 0.01)
                made = learning_rate(METHODS[name], lora, sizing, multiplier=1.0)
                assert made == pytest.approx(said, rel=0.005), (name, lora, size)


@pytest.mark.parametrize("row", EXAMPLES, ids=lambda row: " ".join(row[:3]))
def test_the_examples_are_computed(row: list[str]) -> None:
    method, examples, model, epochs, batch, rate = row
    number, unit = model.split()
    sizing = Sizing(
        examples=int(examples.replace(",", "")), model_bytes=int(float(number) * UNITS[unit])
    )
    config = TRLConfig.from_openai(
        method=method, hyperparameters={}, seed=1, sizing=sizing, extra={}
    )
    made = msgspec.convert(config.to_document(), TRLTraining)
    assert made.epochs == int(epochs)
    assert made.batch_size * made.gradient_accumulation_steps == int(batch)
    assert made.learning_rate == float(rate)


def test_every_setting_is_on_the_page() -> None:
    named = {name for row in table("Field | Methods | Meaning") for name in row[0].split("`, `")}
    assert named == set(TRLSettings.__struct_fields__)


def test_the_bounds_of_the_rule_are_those_of_the_code() -> None:
    for said in (
        f"near {MAX_AUTO_EXAMPLES:,} examples",
        f"at most {MAX_AUTO_EPOCHS} |",
        f"exponent, at most {MAX_LEARNING_RATE}",
        f"below {SMALL_MODEL_BYTES // 10**6} MB",
    ):
        assert said in PAGE
