"""Methods of training, and options of several commands about a training."""

from enum import StrEnum
from typing import Annotated

import typer

from windlass.cli.framework.values import whole

Whole = Annotated[str | None, typer.Option(parser=whole, metavar="NUMBER|auto")]


class MethodName(StrEnum):
    """Methods of training; `docs/how-to/choose-a-training-method.md` says what each is for."""

    SUPERVISED = "supervised"
    DPO = "dpo"
    REINFORCEMENT = "reinforcement"
    RLOO = "rloo"
    KTO = "kto"
    ORPO = "orpo"
    REWARD = "reward"
    DISTILLATION = "distillation"
