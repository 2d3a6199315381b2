"""The TorchTune backend: Kubeflow's `TorchTuneConfig`, with the arguments of its SDK.

The order and the spelling of the arguments are Kubeflow SDK 0.5.0's, and so is the dropping of
what is empty or zero. Kubeflow Trainer appends the recipe and its configuration on the cluster.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar

from windlass.backends.backend import InvalidConfig, LLMBackend, RenderContext
from windlass.backends.initializers import WORKSPACE, HuggingFaceDatasetInitializer
from windlass.backends.registry import register_backend

_INSTRUCT_DATASET = "torchtune.datasets.instruct_dataset"


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
class TorchTuneConfig(LLMBackend):
    """A supervised training with a recipe of TorchTune; None keeps the recipe's value."""

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

    def to_command(self, context: RenderContext | None = None) -> tuple[str, ...]:
        """Returns TorchTune's command, which Kubeflow Trainer recognizes and completes."""
        return ("tune", "run")

    def to_args(self, context: RenderContext | None = None) -> list[str]:
        """Returns the overrides of a recipe; the dataset's place is that of the initializer."""
        return list(self._args(context))

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


def _choice(name: str, value: Enum, kind: type[Enum]) -> str:
    if not isinstance(value, kind):
        known = ", ".join(f"{kind.__name__}.{one.name}" for one in kind)
        raise InvalidConfig(name, f"Invalid {name}: {value}. It is one of {known}")
    return str(value.value)
