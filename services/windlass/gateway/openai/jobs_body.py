"""The body that creates a fine-tuning job, and its translation to the contract."""

import json
from typing import Annotated, Any, Literal

from pydantic import Field, StrictFloat, StrictInt

from windlass.api.jobs.v1 import jobs_pb2 as pb
from windlass.core.errors import InvalidArgument
from windlass.gateway.parameters import Body

Auto = Literal["auto"]
Text = Annotated[str, Field(max_length=512)]


class Hyperparameters(Body):
    """Of a supervised job."""

    batch_size: Auto | StrictInt | None = None
    learning_rate_multiplier: Auto | StrictInt | StrictFloat | None = None
    n_epochs: Auto | StrictInt | None = None


class DpoHyperparameters(Hyperparameters):
    """Of a preference job."""

    beta: Auto | StrictInt | StrictFloat | None = None


class Supervised(Body):
    """Configuration of the supervised method."""

    hyperparameters: Hyperparameters | None = None


class Dpo(Body):
    """Configuration of the DPO method."""

    hyperparameters: DpoHyperparameters | None = None


class ReinforcementHyperparameters(Hyperparameters):
    """Of a job that learns from rewards."""

    compute_multiplier: Auto | StrictInt | StrictFloat | None = None
    eval_interval: Auto | StrictInt | None = None
    eval_samples: Auto | StrictInt | None = None
    reasoning_effort: Literal["default", "low", "medium", "high"] | None = None


class Reinforcement(Body):
    """Configuration of the reinforcement method."""

    grader: dict[str, Any]
    hyperparameters: ReinforcementHyperparameters | None = None


class Method(Body):
    """How to train."""

    type: Literal["supervised", "dpo", "reinforcement"]
    supervised: Supervised | None = None
    dpo: Dpo | None = None
    reinforcement: Reinforcement | None = None

    @property
    def chosen(self) -> Supervised | Dpo | Reinforcement | None:
        """The configuration of `type`; raises InvalidArgument for one of another method."""
        configured = {
            "supervised": self.supervised,
            "dpo": self.dpo,
            "reinforcement": self.reinforcement,
        }
        chosen = configured.pop(self.type)
        if any(other is not None for other in configured.values()):
            raise InvalidArgument(
                f"method.type is {self.type}; configure no other.", param="method"
            )
        return chosen


class Wandb(Body):
    """Weights & Biases; its key is the project's secret `wandb`."""

    project: Text
    name: Text | None = None
    entity: Text | None = None
    tags: Annotated[list[Text], Field(max_length=50)] = []


class Mlflow(Body):
    """An MLflow server; its token, or the password of `username`, is the secret `mlflow`."""

    tracking_uri: Text
    experiment: Text
    name: Text | None = None
    tags: Annotated[dict[Text, Text], Field(max_length=50)] | None = None
    username: Text | None = None
    authenticate: Annotated[bool, Field(description="false: it asks for no secret.")] = True


class Tensorboard(Body):
    """An event file among the result files."""


class Integration(Body):
    """Where metrics go besides: OpenAI's Weights & Biases, MLflow, TensorBoard."""

    type: Literal["wandb", "mlflow", "tensorboard"]
    wandb: Wandb | None = None
    mlflow: Mlflow | None = None
    tensorboard: Tensorboard | None = None


class CreateJob(Body):
    """A fine-tuning job to create."""

    model: Annotated[str, Field(min_length=1, max_length=256)]
    training_file: Annotated[str, Field(min_length=1, max_length=128)]
    validation_file: Annotated[str, Field(max_length=128)] | None = None
    suffix: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    seed: Annotated[StrictInt, Field(ge=0, lt=2**31)] | None = None
    method: Method | None = None
    hyperparameters: Annotated[
        Hyperparameters | None, Field(deprecated="Put them into method.")
    ] = None
    integrations: Annotated[list[Integration], Field(max_length=5)] | None = None
    metadata: (
        Annotated[dict[Annotated[str, Field(max_length=64)], Text], Field(max_length=16)] | None
    ) = None
    windlass: Annotated[
        dict[str, Any] | None,
        Field(
            description="Beyond OpenAI: method, runtime, backend, config, document, resources, "
            "checkpoints, export."
        ),
    ] = None

    def to_proto(self, request_id: str) -> pb.CreateJobRequest:
        """The RPC's request; raises InvalidArgument."""
        method, hyperparameters = self._method()
        return pb.CreateJobRequest(
            model=self.model,
            training_file=self.training_file,
            validation_file=self.validation_file or "",
            suffix=self.suffix or "",
            seed=self.seed,
            method=method,
            hyperparameters=_dump(hyperparameters),
            grader=self._grader(),
            metadata=self.metadata or {},
            integrations=_json(
                [
                    one.model_dump(exclude_unset=True, exclude_none=True)
                    for one in self.integrations or []
                ]
            ),
            extra=_json(self.windlass) if self.windlass is not None else b"",
            request_id=request_id,
        )

    def _method(self) -> tuple[str, Hyperparameters | None]:
        top = self.__dict__["hyperparameters"]
        if self.method is None:
            return "", top
        chosen = self.method.chosen
        within = chosen.hyperparameters if chosen is not None else None
        if top is not None and within is not None:
            raise InvalidArgument(
                "Give hyperparameters within method alone.", param="hyperparameters"
            )
        return self.method.type, within or top

    def _grader(self) -> bytes:
        reinforcement = self.method and self.method.reinforcement
        return _json(reinforcement.grader) if reinforcement else b""


def _dump(hyperparameters: Hyperparameters | None) -> bytes:
    if hyperparameters is None:
        return b"{}"
    return _json(hyperparameters.model_dump(exclude_none=True))


def _json(value: Any) -> bytes:
    """Whatever a JSON body held, as it was: NaN, huge numbers and halves of characters too.

    The service refuses those by the name of their field.
    """
    return json.dumps(value).encode()
