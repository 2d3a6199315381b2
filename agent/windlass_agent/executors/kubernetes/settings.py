"""Operator settings of a cluster: images, accelerators, sizes, shapes, an overlay."""

from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from windlass.kubernetes import names
from windlass.kubernetes.quantities import quantity
from windlass.kubernetes.resources import NVIDIA_GPU
from windlass_agent.executors.kubernetes.engine_settings import EngineSettings
from windlass_agent.executors.kubernetes.overlay import check_overlay

Object = dict[str, Any]
Label = Annotated[str, AfterValidator(lambda value: names.dns_label("Name", value))]
Subdomain = Annotated[str, AfterValidator(lambda value: names.dns_subdomain("Name", value))]
Resource = Annotated[str, AfterValidator(lambda value: names.label_key("Resource", value))]
Amount = Annotated[str, AfterValidator(lambda value: _positive(value))]
Selector = Annotated[dict[str, str], AfterValidator(names.node_selector)]
Network = Annotated[str, AfterValidator(lambda value: str(ip_network(value)))]
Overlay = Annotated[Object, AfterValidator(check_overlay)]
GIB = 1024**3
# What pods call the claim of their devices.
CLAIM = "accelerator"


def _positive(value: str) -> str:
    if quantity(value) <= 0:
        raise ValueError(f"{value!r} is nothing of a device")
    return value


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PodToleration(_Section):
    """A toleration of pods, with Kubernetes's fields."""

    key: str = ""
    operator: Literal["Exists", "Equal"] = "Exists"
    value: str = ""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""


class Accelerator(_Section):
    """One kind of device: what pods ask for, and what they need beside it."""

    resource: Resource | Literal[""] = Field(
        "", description="Extended resource, such as `nvidia.com/gpu`; empty for a device class."
    )
    device_class: Subdomain | Literal[""] = Field(
        "", description="DeviceClass, claimed through Dynamic Resource Allocation."
    )
    selector: str = Field("", description="CEL expression that a claimed device must meet.")
    capacity: dict[Resource, Amount] = Field(
        {},
        description="What a claim has of a device that several may have at once, by the names of "
        "the device's driver (consumable capacity, Kubernetes 1.36); empty: whole devices.",
    )
    quota: str = Field(
        "", description="Resource name in Kueue's quotas; empty: the accelerator's own name."
    )
    queues: frozenset[str] = Field(
        frozenset(),
        description="LocalQueues whose jobs get it; empty: all that no other accelerator names.",
    )
    image: str = Field("", description="Image of the runner; empty: the cluster's `image`.")
    node_selector: Selector = {}
    tolerations: tuple[PodToleration, ...] = ()
    env: dict[str, str] = {}
    runtime_class: Subdomain | Literal[""] = ""
    device: Literal["auto", "cpu", "cuda"] = Field(
        "cuda", description="Device that the runner trains on; `cuda` for AMD GPUs too."
    )

    @property
    def counted_as(self) -> str:
        """The resource of a ClusterQueue that holds quota for it."""
        return self.quota or self.resource or self.device_class

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if bool(self.resource) == bool(self.device_class):
            raise ValueError("an accelerator is either a resource or a device_class")
        if self.capacity and not self.device_class:
            raise ValueError("capacity: only claimed devices have it (device_class)")
        return self


class Sizes(_Section):
    """Resources of one node of a job that asks for none, in bytes except `cpus`."""

    cpus: float = Field(1, ge=0.001)
    memory_bytes: int = Field(4 * GIB, ge=1)
    workdir_bytes: int = Field(20 * GIB, ge=1, description="Model, data and checkpoints.")
    tmp_bytes: int = Field(1 * GIB, ge=1)
    shm_bytes: int = Field(1 * GIB, ge=1, description="Size of /dev/shm, which counts as memory.")


class Deadlines(_Section):
    """Time limits of an attempt, in seconds."""

    active: int = Field(14 * 86_400, ge=1, description="Longest run of one attempt.")
    ttl: int = Field(86_400, ge=0, description="Time until a finished object is deleted.")
    unreachable: int = Field(
        30, ge=0, description="Time until pods of an unreachable node count as lost."
    )
    grace: int = Field(60, ge=1, description="Time that a stopped trainer has to save its state.")
    drain: int = Field(300, ge=1, description="Time between SIGTERM and SIGKILL, uploads included.")


class Patience(_Section):
    """Seconds to wait for a condition that may resolve itself before the job fails."""

    setup: int = Field(120, ge=0, description="For a missing namespace, queue or service account.")
    start: int = Field(120, ge=0, description="For a refused image, volume or pod.")
    schedule: int = Field(
        300,
        ge=0,
        description="For a pod that no node matches; a full node is waited for without a limit.",
    )

    def of(self, kind: str) -> float:
        """Returns the patience called `kind`: setup, start or schedule."""
        return float(getattr(self, kind))


class Egress(_Section):
    """Destinations that pods may connect to, besides DNS and the agent."""

    cidr: Network
    excluded: tuple[Network, ...] = ()
    ports: tuple[Annotated[int, Field(ge=1, le=65_535)], ...] = (443,)


class ClusterSettings(_Section):
    """The cluster section of an agent's settings."""

    image: str = Field("ghcr.io/windlass/runner:0.1.0", description="Image of the runner.")
    image_pull_policy: Literal["", "Always", "IfNotPresent", "Never"] = ""
    python: str = Field("python", description="Interpreter in the image.")
    agent_namespace: Label = "windlass-agent"
    agent_address: str = Field(
        "windlass-agent.windlass-agent.svc:8443",
        pattern=r"^([A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\]):[0-9]{1,5}$",
        description="Address by which pods reach the agent.",
    )
    agent_ca: str = Field("", description="PEM of the CA of the agent's certificate.")
    accelerators: tuple[Accelerator, ...] = (Accelerator(resource=NVIDIA_GPU),)
    sizes: Sizes = Sizes()
    deadlines: Deadlines = Deadlines()
    patience: Patience = Patience()
    backends: frozenset[str] = Field(
        frozenset({"trl"}), description="Backends installed in the image."
    )
    libraries: frozenset[Literal["bitsandbytes", "deepspeed"]] = Field(
        frozenset({"bitsandbytes"}),
        description="Packages installed in the image that QLoRA and ZeRO need.",
    )
    run_as_user: int | None = Field(
        10_001, ge=1, description="User id of the runner; None: the cluster chooses."
    )
    service_account: Label = "windlass-runner"
    several_nodes: Literal["jobset", "indexed"] = "jobset"
    federation: bool = Field(
        False, description="Let objects with managedBy windlass.dev/federation run elsewhere."
    )
    trainjob: bool = Field(False, description="Kubeflow TrainJobs instead of Jobs and JobSets.")
    egress: tuple[Egress, ...] = (
        Egress(cidr="0.0.0.0/0", excluded=("169.254.0.0/16",)),
        Egress(cidr="::/0", excluded=("fe80::/10", "fd00:ec2::254/128")),
    )
    overlay: Overlay = Field({}, description="Pod template, merged into the pod of every job.")
    engines: EngineSettings = EngineSettings()

    @model_validator(mode="after")
    def _jobs_stay_out(self) -> Self:
        volumes = (self.overlay.get("spec") or {}).get("volumes") or ()
        claims = [(one.get("persistentVolumeClaim") or {}).get("claimName") for one in volumes]
        if self.engines.weights.claim and self.engines.weights.claim in claims:
            raise ValueError("overlay: jobs may not have the claim of engines.weights")
        return self

    @classmethod
    def load(cls, path: Path, *, overlay: Path | None = None) -> Self:
        """Reads the settings from YAML files; raises pydantic's ValidationError."""
        section = yaml.safe_load(path.read_text()) or {}
        if overlay is not None:
            section["overlay"] = yaml.safe_load(overlay.read_text()) or {}
        return cls.model_validate(section)
