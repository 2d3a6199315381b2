"""Choice of TorchTune's recipe and configuration, as Kubeflow Trainer v2.3 makes it.

The only place of this choice: the runner of TorchTune and the admission of TrainJobs both ask here.
Nothing is read or run; an override is TorchTune's own `key=value`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

MODELS = frozenset({"llama3_2/1B", "llama3_2/3B", "llama3_3/70B", "qwen2_5/1.5B"})
# Whose configuration may only come from a runtime: they are paths.
MANAGED = frozenset(
    {"output_dir", "tokenizer.path", "tokenizer.merges_file", "checkpointer.checkpoint_dir"}
)
_ON_SEVERAL_NODES = frozenset({"llama3_3/70B"})
_WITHOUT_QLORA = frozenset({"qwen2_5/1.5B"})
_QLORA_ON_ONE_DEVICE = frozenset({"llama3_2/1B", "llama3_2/3B"})

Adaptation = Literal["full", "lora", "qlora"]


@dataclass(frozen=True, kw_only=True)
class TrainingResources:
    """Resources of a training: nodes, and the GPUs and CPUs of each.

    `processes` is how many a node runs; None is one for each GPU or, without any, for each CPU.
    """

    nodes: int = 1
    processes: int | None = None
    gpus: int = 0
    cpus: int = 0

    @property
    def is_single_device(self) -> bool:
        """True if one device does everything, for which TorchTune has recipes of their own."""
        return self.nodes == 1 and (self._processes == 1 or self.gpus == 1)

    @property
    def needs_rendezvous(self) -> bool:
        """True if several processes must find each other."""
        several = self.gpus if self._processes is None else self._processes
        return self.nodes > 1 or several > 1

    @property
    def _processes(self) -> int | None:
        if self.processes is None and not self.gpus:
            return max(1, self.cpus)
        return self.processes


@dataclass(frozen=True)
class Recipe:
    """A recipe, and the configuration that it starts from."""

    name: str
    config: str


@dataclass(frozen=True)
class RecipeRefusal:
    """Reason why no recipe fits; `index` is that of the override at fault."""

    subject: Literal["model", "nodes", "processes", "overrides"]
    message: str
    index: int = 0


def choose_recipe(model: str, overrides: Sequence[str], placement: TrainingResources) -> Recipe:
    """Returns the recipe for a model of `MODELS`; one that `refusals` complains of may not run."""
    kind = adaptation(overrides)
    if placement.nodes > 1:
        # There is no recipe for adapters on several nodes.
        return Recipe("full_finetune_distributed", f"{model}_full_multinode")
    name = "full_finetune" if kind == "full" else "lora_finetune"
    if placement.is_single_device:
        return Recipe(f"{name}_single_device", f"{model}_{kind}_single_device")
    return Recipe(f"{name}_distributed", f"{model}_{kind}")


def adaptation(overrides: Sequence[str]) -> Adaptation:
    """The trained part: all weights, or adapters on a base that may be quantized."""
    if _says(overrides, "model.quantize_base") and not _says(overrides, "model.use_dora"):
        return "qlora"
    has_modules = any("model.lora_attn_modules" in override for override in overrides)
    return "lora" if has_modules else "full"


def refusals(
    model: str, overrides: Sequence[str], placement: TrainingResources
) -> Iterator[RecipeRefusal]:
    """Yields whatever speaks against a training, in Kubeflow Trainer's own terms."""
    kind = adaptation(overrides)
    if model not in MODELS:
        known = ", ".join(sorted(MODELS))
        yield RecipeRefusal("model", f"TorchTune has no configuration for '{model}' here: {known}")
    if placement.nodes > 1 and model not in _ON_SEVERAL_NODES:
        yield RecipeRefusal("nodes", f"must be 1 for {model}")
    if placement.nodes > 1 and kind != "full":
        yield RecipeRefusal(
            "nodes", "must be 1 for LoRA and QLoRA: TorchTune trains them on one node"
        )
    if placement.nodes == 1 and kind == "qlora":
        if model in _WITHOUT_QLORA:
            yield RecipeRefusal("model", f"QLoRA is not supported for {model}")
        if model in _QLORA_ON_ONE_DEVICE and not placement.is_single_device:
            yield RecipeRefusal("processes", f"QLoRA of {model} needs one process and one GPU")
    for index, override in enumerate(overrides):
        key = override.partition("=")[0]
        if key in MANAGED:
            yield RecipeRefusal("overrides", f"'{key}' is managed by the runtime", index)


def model_of(runtime: str) -> str:
    """Returns TorchTune's name of a runtime's model: `x-llama3.2-1b` is `llama3_2/1B`.

    The name is empty where the runtime's has not three parts.
    """
    parts = runtime.split("-")
    if len(parts) != 3:
        return ""
    return f"{parts[1].replace('.', '_')}/{parts[2].upper()}"


def _says(overrides: Sequence[str], key: str) -> bool:
    """Returns True if an override of the key is true; like Trainer, by part of the key."""
    for override in overrides:
        name, _, value = override.partition("=")
        if key in name and value.strip().lower() == "true":
            return True
    return False
