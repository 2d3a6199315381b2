"""The port of training backends (Kubeflow's KEP-2839, with the job's context added)."""

import abc
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from windlass.backends.initializers import WORKSPACE, HuggingFaceDatasetInitializer, Initializer

DatasetFormat = Literal["chat", "preference", "unpaired_preference", "prompt", "reinforcement"]


class InvalidConfig(ValueError):
    """A value that a backend refuses; `field` is the path of the request's field at fault."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


@dataclass(frozen=True)
class Sizing:
    """Facts that "auto" is resolved from: examples of the training file, bytes of the weights.

    A batch is shared out among the `processes` of each node. `lora_targets` are the layers that
    the preset of the model's family has an adapter on; none for all linear ones.
    """

    examples: int
    model_bytes: int
    processes: int = 1
    lora_targets: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if min(self.examples, self.model_bytes, self.processes) < 1:
            raise ValueError("a job needs at least one example and a model that weighs something")


@dataclass(frozen=True, kw_only=True)
class RenderContext:
    """The place where a job runs: absolute paths and the device, none of it chosen by the tenant.

    `dataset` is a folder with `train.jsonl` and, for a validation set, `test.jsonl`. `metrics`
    is for backends whose trainer itself writes metrics to a file that it is told. `companions`
    are folders of the other models that a job needs, by role. Each of `nodes` has `processes`
    that train together. `managed` says that our runner
    launches the trainer; otherwise a TrainJob's pod does (`of_pod`).
    """

    model: Path
    dataset: Path
    output: Path
    device: Literal["cpu", "cuda"]
    nodes: int = 1
    processes: int = 1
    python: str = sys.executable
    resume_from: Path | None = None
    has_validation: bool = False
    metrics: Path | None = None
    companions: Mapping[str, Path] = field(default_factory=dict)
    initializer: Initializer | None = None
    managed: bool = True

    def __post_init__(self) -> None:
        paths = (self.model, self.dataset, self.output, self.resume_from, self.metrics)
        for path in (*paths, *self.companions.values()):
            # A relative one could read as a hub id, or as a flag.
            if path is not None and not path.is_absolute():
                raise ValueError(f"a job's path must be absolute: {path}")
        if min(self.nodes, self.processes) < 1:
            raise ValueError("a job runs on at least one node, as at least one process")

    @classmethod
    def of_pod(
        cls,
        *,
        initializer: Initializer | None = None,
        nodes: int = 1,
        device: Literal["cpu", "cuda"] = "cuda",
    ) -> Self:
        """Returns a pod of a TrainJob: Kubeflow's paths, and a launcher that reads `PET_*`."""
        source = initializer.dataset if initializer else None
        part = source.path if isinstance(source, HuggingFaceDatasetInitializer) else "."
        return cls(
            model=Path(WORKSPACE, "model"),
            dataset=Path(WORKSPACE, "dataset", part),
            output=Path(WORKSPACE, "output"),
            device=device,
            nodes=nodes,
            initializer=initializer,
            managed=False,
        )


class LLMBackend(abc.ABC):
    """One training configuration, and how a trainer is told about it.

    A subclass names itself (`name`), the trainer that it drives (`framework`, the value of
    Kubeflow's `trainer.kubeflow.org/framework` label) and the version of its document. Its
    command and arguments make a TrainJob; jobs of the API need the three documents' methods too.
    """

    name: ClassVar[str]
    framework: ClassVar[str]
    schema_version: ClassVar[int]
    # Whether a job's trainer says how it fares at Kubeflow's status endpoint (KEP-2779), as
    # transformers' do that know nothing of us; otherwise it writes `RenderContext.metrics`.
    posts_status: ClassVar[bool] = False
    # Whether a job's model may be an adapter, which training goes on from. `from_openai` is then
    # given `adapter` as well, a document of `AdapterShape`.
    continues_adapters: ClassVar[bool] = False

    @classmethod
    def from_openai(
        cls,
        *,
        method: str,
        hyperparameters: Mapping[str, Any],
        seed: int,
        sizing: Sizing,
        extra: Mapping[str, Any],
        grader: Mapping[str, Any] | None = None,
    ) -> Self:
        """Builds a configuration from OpenAI's method and ours (`extra`); raises InvalidConfig.

        `grader` comes with reinforcement alone: a document of `windlass.graders` that is sound.
        """
        raise cls._not_managed()

    @classmethod
    def numbers(
        cls,
        *,
        method: str,
        hyperparameters: Mapping[str, Any],
        sizing: Sizing,
        extra: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Returns OpenAI's hyperparameters with what "auto" came to, as the API shows them."""
        return dict(hyperparameters)

    @classmethod
    def from_document(cls, document: Mapping[str, Any], schema_version: int) -> Self:
        """Reads what `to_document` wrote; raises InvalidConfig for anything unknown.

        A tenant may have written it: every value is checked, and none names what is not theirs.
        """
        raise cls._not_managed()

    def to_document(self) -> dict[str, Any]:
        """Returns the configuration as JSON values; raises InvalidConfig."""
        raise self._not_managed()

    @abc.abstractmethod
    def to_command(self, context: RenderContext | None = None) -> tuple[str, ...]:
        """Returns the command; without a context, the one for a TrainJob's pod."""

    @abc.abstractmethod
    def to_args(self, context: RenderContext | None = None) -> list[str]:
        """Returns the arguments; without a context, those for a TrainJob's pod."""

    def validate(self) -> None:  # noqa: B027 - optional, as in the KEP
        """Raises InvalidConfig for a configuration that cannot be trained."""

    @property
    def job_method(self) -> str:
        """The API's method that a job of this configuration has."""
        return "supervised"

    @property
    def dataset_format(self) -> DatasetFormat:
        """The format that a job's trainer reads; `windlass.datasets` knows which files give it."""
        return "chat"

    @property
    def companions(self) -> Mapping[str, str]:
        """Models that a job needs beside its base: public names by role, such as `teacher`.

        A role is a name of a folder: lower-case letters. Each is complete weights, of the
        job's project, and lies at `RenderContext.companions` when the trainer starts.
        """
        return {}

    @property
    def libraries(self) -> Mapping[str, str]:
        """Python packages that the configuration needs beside its framework's: settings by package.

        A job goes only where they are installed, of those that agents look for.
        """
        return {}

    @property
    def from_adapter(self) -> bool:
        """True if training begins with the adapter at `RenderContext.companions["adapter"]`."""
        return False

    @property
    def grader(self) -> Mapping[str, Any] | None:
        """The grader of a job's answers, which the runner leaves where its trainer looks."""
        return None

    @property
    def num_nodes(self) -> int | None:
        """Nodes that the configuration asks for; None leaves it to the platform."""
        return None

    @property
    def resources_per_node(self) -> dict[str, Any] | None:
        """Resources that each node needs; None leaves it to the platform."""
        return None

    @classmethod
    def _not_managed(cls) -> InvalidConfig:
        return InvalidConfig("windlass.backend", f"'{cls.name}' makes TrainJobs, and no jobs here")
