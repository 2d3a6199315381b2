"""Examples of job files, one for each method: `examples/*.yaml`."""

from enum import StrEnum
from pathlib import Path

FOLDER = Path(__file__).parent / "examples"


class ExampleName(StrEnum):
    """Names of examples, as the methods are usually called."""

    SFT = "sft"
    DPO = "dpo"
    RL = "rl"
    RLOO = "rloo"
    KTO = "kto"
    ORPO = "orpo"
    REWARD = "reward"
    DISTILLATION = "distillation"


def text_of(name: ExampleName) -> str:
    """The file, with its comments."""
    return (FOLDER / f"{name.value}.yaml").read_text(encoding="utf-8")
