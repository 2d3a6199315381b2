"""Bounds of the fields of a training, in configurations, documents and requests."""

from typing import Annotated, Literal

from msgspec import Meta

Rank = Annotated[int, Meta(ge=1, le=512)]
Alpha = Annotated[int, Meta(ge=1, le=1024)]
# A module's name; the pattern keeps flags and regular expressions out.
ModuleName = Annotated[
    str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*\Z", max_length=128)
]
Dropout = Annotated[float, Meta(ge=0, lt=1)]
MaxLength = Annotated[int, Meta(ge=16, le=1_048_576)]
Epochs = Annotated[int, Meta(ge=1, le=50)]
MAX_BATCH = 256
BatchSize = Annotated[int, Meta(ge=1, le=MAX_BATCH)]
Beta = Annotated[float, Meta(gt=0, le=2)]
# Distillation's goes from 0 to 1; `checks` says what else each method wants.
Divergence = Annotated[float, Meta(ge=0, le=2)]
Weight = Annotated[float, Meta(gt=0, le=1000)]
Temperature = Annotated[float, Meta(gt=0, le=10)]
MaxCompletion = Annotated[int, Meta(ge=1, le=16_384)]
EvalSteps = Annotated[int, Meta(ge=1, le=1_000_000)]
MAX_GENERATIONS = 64
Generations = Annotated[int, Meta(ge=2, le=MAX_GENERATIONS)]
MaxSteps = Annotated[int, Meta(ge=1, le=10_000_000)]
Ratio = Annotated[float, Meta(ge=0, lt=1)]
WeightDecay = Annotated[float, Meta(ge=0, le=1)]
Nodes = Annotated[int, Meta(ge=1, le=64)]
Seed = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Scheduler = Literal["linear", "cosine", "constant", "constant_with_warmup"]

DEFAULT_BETA = 0.1
