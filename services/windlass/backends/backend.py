"""What a training backend is (the shape of Kubeflow's KEP-2839, with the job's context added)."""

import abc
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self


class InvalidConfig(ValueError):
    """A value that a backend refuses; `field` is the path of the request's field at fault."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


@dataclass(frozen=True)
class Sizing:
    """What "auto" is resolved from: examples in the training file, bytes of the base's weights."""

    examples: int
    model_bytes: int

    def __post_init__(self) -> None:
        if self.examples < 1 or self.model_bytes < 1:
            raise ValueError("a job needs at least one example and a model that weighs something")


@dataclass(frozen=True, kw_only=True)
class RenderContext:
    """Where a job runs: absolute paths of ours, and the device. None of it is the tenant's.

    `dataset` is a folder with `train.jsonl` and, for a validation set, `test.jsonl`. `metrics`
    is for backends whose trainer itself writes metrics to a file that it is told.
    """

    model: Path
    dataset: Path
    output: Path
    device: Literal["cpu", "cuda"]
    nodes: int = 1
    python: str = sys.executable
    resume_from: Path | None = None
    has_validation: bool = False
    metrics: Path | None = None

    def __post_init__(self) -> None:
        for path in (self.model, self.dataset, self.output, self.resume_from, self.metrics):
            # A relative one could read as a hub id, or as a flag.
            if path is not None and not path.is_absolute():
                raise ValueError(f"a job's path must be absolute: {path}")
        if self.nodes < 1:
            raise ValueError("a job runs on at least one node")


class LLMBackend(abc.ABC):
    """One validated training configuration, and how a trainer is told about it.

    A subclass names itself (`name`), the trainer that it drives (`framework`, the value of
    Kubeflow's `trainer.kubeflow.org/framework` label) and the version of its document.
    """

    name: ClassVar[str]
    framework: ClassVar[str]
    schema_version: ClassVar[int]

    @classmethod
    @abc.abstractmethod
    def from_openai(
        cls,
        *,
        method: str,
        hyperparameters: Mapping[str, Any],
        seed: int,
        sizing: Sizing,
        extra: Mapping[str, Any],
    ) -> Self:
        """Builds a configuration from OpenAI's method and ours (`extra`); raises InvalidConfig."""

    @classmethod
    @abc.abstractmethod
    def from_document(cls, document: Mapping[str, Any], schema_version: int) -> Self:
        """Reads what `to_document` wrote; raises InvalidConfig for anything unknown."""

    @abc.abstractmethod
    def to_document(self) -> dict[str, Any]:
        """Returns the configuration as JSON values."""

    @abc.abstractmethod
    def to_command(self, context: RenderContext | None = None) -> tuple[str, ...]:
        """Returns the command; without a context, the one for a pod that torchrun launches."""

    @abc.abstractmethod
    def to_args(self, context: RenderContext | None = None) -> list[str]:
        """Returns the arguments; without a context, those that depend on no place."""

    def validate(self) -> None:  # noqa: B027 - optional, as in the KEP
        """Raises InvalidConfig for a configuration that cannot be trained."""

    @property
    def dataset_format(self) -> Literal["chat", "preference"]:
        """The format that the training and validation files must have."""
        return "chat"

    @property
    def num_nodes(self) -> int | None:
        """Nodes that the configuration asks for; None leaves it to the platform."""
        return None

    @property
    def resources_per_node(self) -> dict[str, Any] | None:
        """Resources that each node needs; None leaves it to the platform."""
        return None
