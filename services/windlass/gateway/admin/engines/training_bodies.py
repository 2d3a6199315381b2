"""Bodies of requests that train engines."""

from typing import Annotated, Literal

from pydantic import Field

from windlass.api.inference.v1 import inference_pb2 as pb
from windlass.gateway.admin.engines.datum_bodies import TokenId, TrainingDatum
from windlass.gateway.parameters import Body

Ids = Annotated[list[TokenId], Field(min_length=1, max_length=2**20)]
Key = Annotated[
    str,
    Field(max_length=256, description="The same request under the same key is the same training."),
]


class TrainingSample(Body):
    """Token ids, of which the continuation alone has a loss."""

    context_ids: Ids
    continuation_ids: Ids
    weights: Annotated[
        list[Annotated[float, Field(ge=0, le=1e6, strict=False)]],
        Field(max_length=2**20, description="One for each id of the continuation; empty: all 1."),
    ] = []


Limit = Annotated[float, Field(ge=0, le=1e6, strict=False)]
Steps = Annotated[int, Field(ge=0, le=100_000)]


class TrainingGuard(Body):
    """A held-out set, and the limits that end a training and put the last good version back."""

    samples: Annotated[list[TrainingSample], Field(min_length=1, max_length=1000)]
    every: Annotated[
        int, Field(ge=1, le=100_000, description="Steps from one measurement to the next.")
    ] = 10
    max_loss: Annotated[
        Limit | None, Field(description="Of the mean loss of the continuations.")
    ] = None
    max_kl: Annotated[
        Limit | None, Field(description="From the model that it began with, in nats a token.")
    ] = None

    def to_message(self) -> pb.TrainingGuard:
        """The guard of the request to the service."""
        values = self.model_dump(exclude={"samples"}, exclude_none=True)
        return pb.TrainingGuard(samples=_messages(self.samples), **values)


class TrainEngine(Body):
    """Samples or datums for an engine to learn, and how."""

    samples: Annotated[
        list[TrainingSample], Field(max_length=10_000, description="These, or datums.")
    ] = []
    datums: Annotated[
        list[TrainingDatum], Field(max_length=10_000, description="Tinker's, with a loss.")
    ] = []
    loss: Annotated[
        str,
        Field(max_length=64, description="Of datums, summed over those of a step."),
    ] = ""
    loss_config: Annotated[
        dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False, strict=False)]],
        Field(max_length=10, description="Settings of the loss, where they differ from its own."),
    ] = {}
    learning_rate: Annotated[float, Field(ge=0, le=10, strict=False)] = 1e-5
    epochs: Annotated[int, Field(ge=1, le=100_000)] = 1
    batch: Annotated[int, Field(ge=1, le=256, description="Samples of each step.")] = 1
    optimizer: Literal["apollo-mini", "apollo", "adamw", "sgd"] = "apollo-mini"
    rank: Annotated[int, Field(ge=1, le=4096, description="Of APOLLO's projections.")] = 64
    seed: Annotated[int, Field(ge=0, le=2**32)] = 0
    max_seconds: Annotated[
        int, Field(ge=1, le=7 * 86_400, description="The training fails if it takes longer.")
    ] = 3600
    guard: TrainingGuard | None = None
    place_steps: Annotated[
        Steps,
        Field(description="Steps after which mode shadow puts its copy in place; 0: at the end."),
    ] = 0
    save_steps: Annotated[
        Steps,
        Field(description="Steps after which a version is saved that a lost worker goes on from."),
    ] = 0
    idempotency_key: Key = ""

    def to_message(self, model: str) -> pb.CreateEngineTrainingRequest:
        """The request to the service."""
        values = self.model_dump(exclude={"samples", "datums", "guard"})
        return pb.CreateEngineTrainingRequest(
            model=model,
            samples=_messages(self.samples),
            datums=[one.to_message() for one in self.datums],
            guard=self.guard.to_message() if self.guard else None,
            **values,
        )


class CheckpointEngine(Body):
    """The end of the name of the model that an engine's weights become."""

    suffix: Annotated[
        str,
        Field(
            min_length=1,
            max_length=64,
            description="Letters, digits, '.', '_' and '-'; begins with a letter or digit.",
        ),
    ] = "trained"
    idempotency_key: Key = ""


def _messages(samples: list[TrainingSample]) -> list[pb.TrainingSample]:
    return [pb.TrainingSample(**one.model_dump()) for one in samples]
