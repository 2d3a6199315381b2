"""A runtime and a TrainJob's trainer, as far as a framework looks at them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from windlass.backends.torchtune.recipes import TrainingResources
from windlass.kubernetes.quantities import units

FRAMEWORK = "trainer.kubeflow.org/framework"
_ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"
Object = Mapping[str, Any]


@dataclass(frozen=True)
class TrainJobRefusal:
    """Reason that a TrainJob cannot run; `field` is the path of the field at fault."""

    field: str
    message: str


@dataclass(frozen=True, kw_only=True)
class TrainingRuntime:
    """A TrainingRuntime, or one of the cluster: what its node runs unless a TrainJob says."""

    name: str
    framework: str = ""
    # Whether it is torch that Kubeflow Trainer prepares; other policies have other rules.
    is_torch: bool = True
    annotations: Mapping[str, str] = field(default_factory=dict)
    nodes: int = 1
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    # The names of its environment.
    variables: frozenset[str] = frozenset()
    resources: Object = field(default_factory=dict)
    # The images that fetch the `dataset` and the `model`.
    initializers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, item: Object) -> Self:
        """Reads the object as the API serves it."""
        metadata, spec = item["metadata"], item.get("spec") or {}
        policy = spec.get("mlPolicy") or {}
        template = (spec.get("template") or {}).get("spec") or {}
        node = _container(template, "trainer", "node")
        fetching = {kind: f"{kind}-initializer" for kind in ("dataset", "model")}
        return cls(
            name=metadata["name"],
            framework=(metadata.get("labels") or {}).get(FRAMEWORK, ""),
            is_torch="torch" in policy,
            annotations=metadata.get("annotations") or {},
            nodes=policy.get("numNodes") or 1,
            command=tuple(node.get("command") or ()),
            args=tuple(node.get("args") or ()),
            variables=frozenset(one["name"] for one in node.get("env") or ()),
            resources=node.get("resources") or {},
            initializers={
                kind: _container(template, name, name).get("image") or ""
                for kind, name in fetching.items()
            },
        )


@dataclass(frozen=True)
class TrainerSpec:
    """The `spec.trainer` of a TrainJob; None where it has none.

    What reads it raises TypeError, KeyError or AttributeError for what no schema would take.
    """

    fields: Object | None = None

    @property
    def command(self) -> tuple[str, ...]:
        """The trainer's command; empty leaves it to the runtime."""
        return self._words("command")

    @property
    def args(self) -> tuple[str, ...]:
        """The trainer's arguments in place of the runtime's; empty leaves them to the runtime."""
        return self._words("args")

    @property
    def variables(self) -> frozenset[str]:
        """The names of its environment."""
        return frozenset(one["name"] for one in (self.fields or {}).get("env") or ())

    def having(self, **fields: Any) -> Self:
        """The same with other fields."""
        return replace(self, fields={**(self.fields or {}), **fields})

    def placement(self, runtime: TrainingRuntime) -> TrainingResources:
        """The placement of a TrainJob; its runtime's where it says nothing."""
        fields = self.fields or {}
        resources = fields.get("resourcesPerNode") or runtime.resources
        return TrainingResources(
            nodes=fields.get("numNodes") or runtime.nodes,
            processes=fields.get("numProcPerNode"),
            gpus=_count(resources, "gpu"),
            cpus=_count(resources, "cpu"),
        )

    def _words(self, name: str) -> tuple[str, ...]:
        words = (self.fields or {}).get(name) or []
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            # A text would become the list of its letters.
            raise TypeError(f"{name} must be a list of strings")
        return tuple(words)


def _container(template: Object, step: str, name: str) -> Object:
    """The container of a name, of the job that is named so or marked as a step of the TrainJob."""
    for job in template.get("replicatedJobs") or ():
        part = job.get("template") or {}
        marks = (part.get("metadata") or {}).get("labels") or {}
        if job.get("name") == name or marks.get(_ANCESTOR) == step:
            pod = ((part.get("spec") or {}).get("template") or {}).get("spec") or {}
            for container in pod.get("containers") or ():
                if container.get("name") == name:
                    found: Object = container
                    return found
    return {}


def _count(resources: Object, kind: str) -> int:
    """The number asked for of a kind; a GPU is whatever has that in its name."""
    for amounts in (resources.get("requests") or {}, resources.get("limits") or {}):
        for name, amount in amounts.items():
            is_meant = kind in name.lower() if kind == "gpu" else name == kind
            if is_meant and (found := units(amount)):
                return found
    return 0
