"""Operator settings of engines in pods: images, sizes, quota, how long they drain."""

import ssl
from collections import Counter
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from windlass.engine_flags import check_flag, check_sglang_flag
from windlass.kubernetes import names
from windlass_agent.engines.in_pods.kinds import COMPLETED
from windlass_agent.engines.in_pods.trainer import TRAINER
from windlass_agent.executors.kubernetes.overlay import check_overlay
from windlass_agent.kube.errors import Unrenderable

GIB = 1024**3
EngineName = Literal["builtin", "llamacpp", "sglang", "vllm"]
# The containers of an engine's pod; a server is one that a program of ours completes.
ENGINE, KEEPER, SERVER = "engine", "keeper", "server"
ClaimName = Annotated[str, AfterValidator(lambda value: names.dns_subdomain("Claim", value))]
PriorityClass = Annotated[str, AfterValidator(lambda value: names.label_value("Name", value))]
Namespace = Annotated[str, AfterValidator(lambda value: names.dns_label("Namespace", value))]
NodeLabels = Annotated[dict[str, str], AfterValidator(names.node_selector)]
PodLabels = Annotated[dict[str, str], AfterValidator(names.label_selector)]


def _check(overlay: dict[str, Any]) -> dict[str, Any]:
    return check_overlay(overlay, {ENGINE, KEEPER, SERVER})


def _no_flag(flag: str) -> str:
    raise ValueError(f"{flag[:80]}: the engine takes no flags of the operator's")


_CHECKS = {
    "builtin": _no_flag, "llamacpp": _no_flag, "sglang": check_sglang_flag, "vllm": check_flag,
}  # fmt: skip


def _trusted(pem: str) -> str:
    try:
        if pem:
            ssl.create_default_context(cadata=pem)
    except ssl.SSLError as error:
        raise ValueError(f"it is no PEM of certificates: {error}") from error
    return pem


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PythonImage(_Part):
    """An image with a Python."""

    image: str
    python: str = Field("python3", description="Interpreter in the image.")


class EngineImage(PythonImage):
    """An image that runs one kind of engine; with a completer, `python` is that one's."""

    flags: tuple[str, ...] = Field(
        (),
        max_length=32,
        description="Flags of vLLM or SGLang beside those that Windlass writes, such as "
        "`--seed=7`.",
    )
    completer: str = Field(
        "",
        description="Image of ours whose `python` completes llama.cpp or SGLang; for llama.cpp, "
        "which needs GGUF, one that has the runner.",
    )
    program: str = Field(
        "",
        pattern=r"^[^\s]{0,500}$",
        description="What it starts in their own image: llama.cpp's server, or SGLang's Python.",
    )


class TrainerSettings(_Part):
    """Pods of the tuning service, which train all parameters of a model and sample from it."""

    image: str = Field("", description="Image of ours that has the runner; empty: none run here.")
    python: str = Field("python", description="Interpreter in the image.")
    memory_bytes: int = Field(
        0, ge=0, description="Memory of each; 0: by its role and the size of the weights."
    )
    node_selectors: dict[Literal["trainer", "sampler"], NodeLabels] = Field(
        {}, description="Labels of the nodes that pods of a role go to, such as `pool: training`."
    )


class PrometheusSettings(_Part):
    """A Prometheus that knows how busy the GPUs of pods are."""

    url: str = Field(
        pattern=r"^https?://[^\s@]{1,500}$", description="Its address, such as `http://host:9090`."
    )
    gpu_query: str = Field(
        "avg by (namespace, pod, exported_namespace, exported_pod) (DCGM_FI_DEV_GPU_UTIL)",
        min_length=1,
        max_length=2000,
        description="Query of the percent by namespace and pod, of another exporter than DCGM's.",
    )


class WeightStore(_Part):
    """A claim in each namespace that its engines' weights are fetched into once."""

    claim: ClaimName | Literal[""] = Field(
        "", description="PersistentVolumeClaim; empty: each pod fetches to its own disk."
    )
    bytes: int = Field(
        0,
        ge=0,
        description="Size of the claim, which the agent makes where it is missing; 0: you make it.",
    )
    storage_class: str = Field("", description="Of such a claim; empty: the cluster's default.")
    access_mode: Literal["ReadWriteMany", "ReadWriteOnce"] = Field(
        "ReadWriteMany", description="`ReadWriteOnce`: all of a namespace's engines on one node."
    )


class PickerSettings(_Part):
    """The endpoint picker of an InferencePool, which the agent asks for one of its replicas."""

    namespace: Namespace = Field(description="Namespace of the pool, and so of its engines.")
    model: str = Field(min_length=1, max_length=256, description="Model that its engines serve.")
    address: str = Field(
        pattern=r"^([A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:]{2,45}\]):[0-9]{1,5}$",
        description="Host and port of the picker's `ext_proc`.",
    )
    ca: Annotated[str, AfterValidator(_trusted)] = Field(
        "", description="PEM of what certifies the picker; empty: prompts go to it in plain text."
    )
    timeout_ms: int = Field(100, ge=5, le=5000, description="Time that it has to name a replica.")
    pods: PodLabels = Field(
        {}, description="Labels of its pods, which may then read engines' load; empty: none may."
    )


class EngineSettings(_Part):
    """The engines of a cluster; none without an image."""

    images: dict[EngineName, EngineImage] = Field(
        {}, description="Images by kind of engine; upstream's own for vLLM."
    )
    keeper: PythonImage = Field(
        PythonImage(image="ghcr.io/windlass/agent:0.1.0", python="python"),
        description="Image of the container beside the engine.",
    )
    trainers: TrainerSettings = TrainerSettings()
    slots: int = Field(
        64, ge=0, le=10_000, description="Engines beyond which other clusters are preferred."
    )
    gpus: int = Field(0, ge=0, le=64, description="GPUs of an engine whose serving asks for none.")
    cpus: float = Field(1, ge=0.001, description="CPUs that an engine asks for.")
    memory_bytes: int = Field(
        0, ge=0, description="Memory of an engine; 0: by its kind and the size of its weights."
    )
    shm_bytes: int = Field(1 * GIB, ge=1, description="Size of /dev/shm, which counts as memory.")
    adapter_bytes: int = Field(
        10 * GIB, ge=1, description="Disk for adapters, beside the weights' own."
    )
    weights: WeightStore = WeightStore()
    priority_class: PriorityClass = Field(
        "", description="WorkloadPriorityClass of engines; empty: the assignment's."
    )
    priority_classes: dict[Literal["low", "high"], PriorityClass] = Field(
        {},
        description="WorkloadPriorityClasses of engines whose servings have another priority than "
        "the usual one; those of a priority without one start in other clusters. `high` is for "
        "projects whose assignment names no class.",
    )
    drain: int = Field(
        300, ge=1, description="Seconds that open requests keep a pod that should end."
    )
    prometheus: PrometheusSettings | None = Field(
        None, description="Prometheus that knows how busy GPUs are; none: nobody measures it."
    )
    pickers: tuple[PickerSettings, ...] = Field(
        (), max_length=256, description="Endpoint pickers of InferencePools; none: gateways choose."
    )
    overlay: Annotated[dict[str, Any], AfterValidator(_check)] = Field(
        {}, description="Pod template, merged into the pod of every engine."
    )

    @field_validator("images")
    @classmethod
    def _sound(cls, images: dict[EngineName, EngineImage]) -> dict[EngineName, EngineImage]:
        for name, image in images.items():
            if (name in COMPLETED) != bool(image.completer):
                raise ValueError(
                    f"{name}: a completer is for the images of {', '.join(sorted(COMPLETED))}, "
                    "and they need one."
                )
            for flag in image.flags:
                _CHECKS[name](flag)
        return images

    @model_validator(mode="after")
    def _one_picker_each(self) -> Self:
        counted = Counter((one.namespace, one.model) for one in self.pickers)
        for (namespace, model), number in counted.items():
            if number > 1:
                raise ValueError(f"pickers: {model} in {namespace} has more than one")
        return self

    def picker_of(self, namespace: str, model: str) -> PickerSettings | None:
        """The picker of the pool of a model's engines in a namespace; None without one."""
        found = (one for one in self.pickers if (one.namespace, one.model) == (namespace, model))
        return next(found, None)

    def require_store(self) -> WeightStore:
        """The claim for weights; raises Unrenderable without one."""
        if not self.weights.claim:
            raise Unrenderable("NoStore", "This cluster's agent has no claim for weights.")
        return self.weights

    def priority_class_of(self, priority: str, assigned: str) -> str:
        """The WorkloadPriorityClass of engines of a priority, empty for the usual one.

        `assigned` is the one of their project. Raises Unrenderable for a priority without one.
        """
        usual = self.priority_class or assigned
        if not priority:
            return usual
        for name, found in self.priority_classes.items():
            if name == priority:
                # A tenant asks for the priority, and the operator has said how far up it goes.
                return usual if priority == "high" and assigned else found
        message = f"This cluster's agent has no priority class for engines of {priority!r}."
        raise Unrenderable("NoPriorityClass", message)

    def image_of(self, engine: str) -> EngineImage:
        """The image of a kind of engine; raises Unrenderable without one."""
        if engine == TRAINER and self.trainers.image:
            return EngineImage(image=self.trainers.image, python=self.trainers.python)
        for name, image in self.images.items():
            if name == engine:
                return image
        message = f"This cluster's agent has no image of the engine {engine!r}."
        raise Unrenderable("NoImage", message)
