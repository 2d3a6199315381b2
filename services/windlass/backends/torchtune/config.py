"""The TorchTune backend: Kubeflow's `TorchTuneConfig`, with the arguments of its SDK.

The order and the spelling of the arguments are Kubeflow SDK 0.5.0's, and so is the dropping of
what is empty or zero. Kubeflow Trainer appends the recipe and its configuration on the cluster.
A job of the API stands in `job` instead, and our own entry runs it with the same recipes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Self

import msgspec

from windlass.backends import methods
from windlass.backends.backend import (
    DatasetFormat,
    InvalidConfig,
    RenderContext,
    Sizing,
)
from windlass.backends.hyperparameters import examples_per_pass, resolve, share_of
from windlass.backends.initializers import WORKSPACE, HuggingFaceDatasetInitializer
from windlass.backends.job_backend import JobBackend
from windlass.backends.launcher import torchrun
from windlass.backends.registry import register_backend
from windlass.backends.torchtune.document import TorchTuneSettings, TorchTuneTraining
from windlass.backends.torchtune.recipes import TrainingResources
from windlass.backends.train_job import node_resources
from windlass.backends.typed import decode
from windlass.kubernetes.resources import NVIDIA_GPU

ENTRY_MODULE = "windlass_agent.runner.trainers.torchtune.entry"
EXTRA_PATH = "windlass.config"
_INSTRUCT_DATASET = "torchtune.datasets.instruct_dataset"
_METHODS = ("supervised", "dpo")
_LATER = ("use_dora", "load_in_4bit")


class DataType(Enum):
    """The type of weights and of the optimizer's state."""

    BF16 = "bf16"
    FP32 = "fp32"


class Loss(Enum):
    """The loss."""

    CEWithChunkedOutputLoss = "torchtune.modules.loss.CEWithChunkedOutputLoss"


class DataFormat(Enum):
    """The format of the dataset's files."""

    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"
    ARROW = "arrow"
    TEXT = "text"
    XML = "xml"


@dataclass
class LoraConfig:
    """LoRA, QLoRA (`quantize_base`) or DoRA; None keeps the recipe's value."""

    apply_lora_to_mlp: bool | None = None
    apply_lora_to_output: bool | None = None
    lora_attn_modules: list[str] = field(
        default_factory=lambda: ["q_proj", "v_proj", "output_proj"]
    )
    lora_rank: int | None = None
    lora_alpha: int | None = None
    lora_dropout: float | None = None
    quantize_base: bool | None = None
    use_dora: bool | None = None

    def to_args(self) -> Iterator[str]:
        """Yields the overrides of the recipe's model; the modules come last."""
        given = dict(vars(self))
        modules = given.pop("lora_attn_modules")
        for name, value in given.items():
            if value is not None:
                yield f"model.{name}={value}"
        if modules:
            yield f"model.lora_attn_modules=[{','.join(modules)}]"


@dataclass
class TorchTuneInstructDataset:
    """Rows with an input and an output; None keeps TorchTune's value."""

    source: DataFormat | None = None
    split: str | None = None
    train_on_input: bool | None = None
    new_system_prompt: str | None = None
    column_map: dict[str, str] | None = None

    def to_args(self) -> Iterator[str]:
        """Yields the dataset and what it is told."""
        yield f"dataset={_INSTRUCT_DATASET}"
        if self.source:
            yield f"dataset.source={_choice('source', self.source, DataFormat)}"
        if self.split:
            yield f"dataset.split={self.split}"
        if self.train_on_input is not None:
            yield f"dataset.train_on_input={self.train_on_input}"
        if self.new_system_prompt:
            yield f"dataset.new_system_prompt={self.new_system_prompt}"
        if self.column_map:
            yield f"dataset.column_map={self.column_map}"


@register_backend
@dataclass
class TorchTuneConfig(JobBackend):
    """A training with a recipe of TorchTune; None keeps the recipe's value.

    `job` is a job of the API, whose other fields are empty.
    """

    name: ClassVar[str] = "torchtune"
    framework: ClassVar[str] = "torchtune"
    schema_version: ClassVar[int] = 1

    dtype: DataType | None = None
    batch_size: int | None = None
    epochs: int | None = None
    loss: Loss | None = None
    num_nodes: int | None = None
    peft_config: LoraConfig | None = None
    dataset_preprocess_config: TorchTuneInstructDataset | None = None
    resources_per_node: dict[str, Any] | None = None
    job: TorchTuneTraining | None = None

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
        """Builds a job's configuration; raises InvalidConfig with the request's path of the field.

        `extra` is the request's `windlass.config`: see `TorchTuneSettings`.
        """
        if method not in _METHODS:
            raise InvalidConfig(
                methods.field_of(method),
                f"TorchTune trains {' and '.join(_METHODS)}; '{method}' needs the backend trl",
            )
        asked = decode(extra, TorchTuneSettings, at=EXTRA_PATH)
        resolved = resolve(method, hyperparameters, lora=asked.lora, sizing=sizing)
        world = (asked.num_nodes or 1) * sizing.processes
        batch_size = share_of(resolved, hyperparameters, method=method, processes=world)
        per_pass = examples_per_pass(sizing, batch_size=batch_size)
        at = f"{EXTRA_PATH}."
        job = asked.training(
            resolved,
            seed=seed,
            per_pass=per_pass,
            accumulation=batch_size // per_pass,
            at=at,
        )
        job.check_place(sizing.processes, at=at)
        return cls._of(job)

    @classmethod
    def from_document(cls, document: Mapping[str, Any], schema_version: int) -> Self:
        """Reads what `to_document` wrote; raises InvalidConfig for anything unknown."""
        cls.check_version(schema_version)
        job = decode(document, TorchTuneTraining, at="")
        job.check(at="")
        return cls._of(job)

    def to_document(self) -> dict[str, Any]:
        """Returns the document of a job; raises InvalidConfig for a TrainJob's configuration."""
        if self.job is None:
            raise InvalidConfig("job", "is missing: this is the configuration of a TrainJob")
        document: dict[str, Any] = msgspec.to_builtins(self.job)
        # A release that has not heard of a field refuses it: it hears of those that are set.
        for name in _LATER:
            if document["adapter"] is not None and not document["adapter"][name]:
                del document["adapter"][name]
        if self.job.num_nodes == 1:
            del document["num_nodes"]
        for name in ("save_steps", "save_minutes"):
            if document[name] is None:
                del document[name]
        return document

    def to_command(self, context: RenderContext | None = None) -> tuple[str, ...]:
        """Returns TorchTune's command, which Kubeflow Trainer recognizes; for a job, our entry."""
        if self.job is not None and context is not None and context.managed:
            return (context.python, *torchrun(context), "-m", ENTRY_MODULE)
        return ("tune", "run")

    def to_args(self, context: RenderContext | None = None) -> list[str]:
        """Returns the overrides of a recipe; the dataset's place is that of the initializer."""
        self._check_place(context)
        if self.job is not None and context is not None:
            return _job_args(self.to_document(), context)
        return list(self._args(context))

    @property
    def job_method(self) -> str:
        """The API's method that a job of this configuration has."""
        return "supervised" if self.job is None else self.job.method

    @property
    def dataset_format(self) -> DatasetFormat:
        """The format that a job's trainer reads."""
        return "preference" if self.job is not None and self.job.method == "dpo" else "chat"

    @property
    def placement(self) -> TrainingResources:
        """The placement of a TrainJob's pods, by which Kubeflow Trainer chooses the recipe."""
        amounts = node_resources(self.resources_per_node or {})
        return TrainingResources(
            nodes=self.num_nodes or 1,
            gpus=_whole(amounts.get(NVIDIA_GPU, 0)),
            cpus=_whole(amounts.get("cpu", 0)),
        )

    @classmethod
    def _of(cls, job: TorchTuneTraining) -> Self:
        return cls(job=job, num_nodes=job.num_nodes if job.num_nodes > 1 else None)

    def _check_place(self, context: RenderContext | None) -> None:
        if self.job is None:
            if context is not None and context.device == "cpu":
                self._check_on_cpu()
            return
        if context is None or not context.managed:
            raise InvalidConfig("job", "runs under Windlass; a TrainJob takes the other fields")
        self.job.check_place(context.processes, at="")

    def _check_on_cpu(self) -> None:
        if not self.placement.is_single_device:
            raise InvalidConfig(
                "num_nodes" if (self.num_nodes or 1) > 1 else "resources_per_node",
                "must be one node with one CPU: where it finds several, TorchTune takes recipes"
                " that need GPUs (FSDP2 with NCCL)",
            )

    def validate(self) -> None:
        """Raises InvalidConfig for what no recipe of TorchTune trains."""
        if self.peft_config is not None and (self.num_nodes or 1) > 1:
            raise InvalidConfig(
                "num_nodes", "TorchTune trains adapters on one node; leave peft_config out for more"
            )

    def _args(self, context: RenderContext | None) -> Iterator[str]:
        if self.dtype:
            yield f"dtype={_choice('dtype', self.dtype, DataType)}"
        if self.batch_size:
            yield f"batch_size={self.batch_size}"
        if self.epochs:
            yield f"epochs={self.epochs}"
        if self.loss:
            yield f"loss={_choice('loss', self.loss, Loss)}"
        yield from _place(context)
        if self.peft_config:
            yield from self.peft_config.to_args()
        if self.dataset_preprocess_config:
            yield from self.dataset_preprocess_config.to_args()


def _place(context: RenderContext | None) -> Iterator[str]:
    source = context.initializer.dataset if context and context.initializer else None
    if isinstance(source, HuggingFaceDatasetInitializer):
        # By a dot, as Kubeflow's SDK does.
        is_file = source.path != "." and "." in source.path
        key = "data_files" if is_file else "data_dir"
        yield f"dataset.{key}={WORKSPACE}/dataset/{source.path}"


def _job_args(document: Mapping[str, Any], context: RenderContext) -> list[str]:
    places = {"model": context.model, "dataset": context.dataset, "output": context.output}
    args = [text for name, path in places.items() for text in (f"--{name}", str(path))]
    args += ["--device", context.device, "--training", msgspec.json.encode(document).decode()]
    return args + (["--resume", str(context.resume_from)] if context.resume_from else [])


def _whole(amount: object) -> int:
    """A whole number of devices; a quantity with a unit is of none that a recipe counts."""
    text = str(amount)
    return int(text) if text.isdigit() else 0


def _choice(name: str, value: Enum, kind: type[Enum]) -> str:
    if not isinstance(value, kind):
        known = ", ".join(f"{kind.__name__}.{one.name}" for one in kind)
        raise InvalidConfig(name, f"Invalid {name}: {value}. It is one of {known}")
    return str(value.value)
