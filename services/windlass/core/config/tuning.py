"""The section of the tuning service."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from windlass.core.config.sections import Section

ModelName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]{0,255}$")]

EngineAddress = Annotated[str, Field(pattern=r"^(unix:///|https?://)[^\s]{1,1000}$")]
DeviceName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]
ClusterName = Annotated[str, Field(pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,127})?$")]
LeasingCluster = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
ProjectId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,128}$")]
_MEMORY = Path("/dev/shm")  # noqa: S108


class PublishingSection(Section):
    """Weights of full-parameter runs as versions, which engines that follow a run take."""

    medium: Literal["", "objects", "volume", "segment"] = Field(
        "",
        description="Where each sampler checkpoint of a run of all parameters is published for "
        "engines: the object store, a volume that agents' machines have too, or the memory of "
        "this machine, for its own agent; empty: nowhere.",
    )
    folder: Path | None = Field(
        None,
        description="Folder of this installation's own on the volume, as it is mounted here; "
        "agents say where by `weights_folder`, and run under the same account.",
    )
    full_every: int = Field(
        20,
        ge=1,
        le=100,
        description="Every so manieth version is whole; the others are what has changed.",
    )

    @property
    def root(self) -> Path | None:
        """The folder that has the folders of runs; None for the object store."""
        if self.medium == "segment":
            return _MEMORY
        return self.folder if self.medium == "volume" else None

    @model_validator(mode="after")
    def _has_a_volume(self) -> Self:
        if (self.medium == "volume") != (self.folder is not None):
            raise ValueError("medium volume and folder come together")
        return self


class DeviceSection(Section):
    """A device, or a group of devices that a trainer uses together."""

    device_bytes: int = Field(ge=1, description="Memory of the device, or of the group together.")
    visible: str = Field(
        "",
        pattern=r"^[A-Za-z0-9,-]{0,1024}$",
        description="What a trainer on it has in `CUDA_VISIBLE_DEVICES`; empty: as the server.",
    )
    devices: int = Field(1, ge=1, le=1024, description="How many devices the group has.")
    project_id: str = Field("", description="The project whose quota it counts against.")
    queue: str = Field("", description="The queue that it was admitted by.")


class DemandSection(Section):
    """Memory that the trainer of a model takes."""

    device_bytes: int = Field(ge=1, description="Of the device while it is active.")
    host_bytes: int = Field(ge=0, description="Of the host, what it parks there included.")
    residue_bytes: int = Field(0, ge=0, description="Of the device while it is parked.")


class ClusterLeaseSection(Section):
    """Devices of a cluster that trainers and samplers of one project share."""

    device_bytes: int = Field(ge=1, description="Memory of the devices together.")
    host_bytes: int = Field(
        ge=1,
        description="Memory of their node for all who share them, which counts against the "
        "project's quota.",
    )
    max_residents: int = Field(8, ge=1, le=256, description="Trainers and samplers on them.")
    gpus: int = Field(1, ge=1, le=64, description="How many devices they are.")
    accelerator: str = Field(
        "", max_length=128, description="Name of the accelerator; empty: any of the cluster's."
    )
    program_bytes: int = Field(
        2 * 2**30, ge=1, description="Memory of the node for each of them, beside what it parks."
    )
    rest_seconds: float = Field(
        60.0, gt=0, description="Time after which devices that nobody uses are given back."
    )


class SeatsSection(Section):
    """Devices that trainers live on, and whose turn it is to compute."""

    devices: dict[DeviceName, DeviceSection] = Field(
        {},
        max_length=64,
        description="Devices by name, each with `device_bytes`, what its trainers have in "
        "`CUDA_VISIBLE_DEVICES` (`visible`), how many it is (`devices`), and the `project_id` and "
        "`queue` that it is of; empty: the processors, whose device memory is that of the host.",
    )
    clusters: dict[LeasingCluster, ClusterLeaseSection] = Field(
        {},
        max_length=64,
        description="Clusters, by name, in which the trainers and samplers of a project share "
        "devices, by one claim or as processes of one pod, each with `device_bytes`, "
        "`host_bytes`, `max_residents`, `gpus`, `accelerator`, `program_bytes` and "
        "`rest_seconds`; in others each has devices of its own.",
    )
    host_bytes: int = Field(
        0,
        ge=0,
        description="Memory of the host for all trainers; 0: nine tenths of all that it has.",
    )
    max_residents: int = Field(32, ge=1, le=256, description="Trainers on one device.")
    demands: dict[ModelName, DemandSection] = Field(
        {},
        max_length=64,
        description="What trainers take, by model: `device_bytes` while they are active, "
        "`residue_bytes` of the device while parked, and `host_bytes`, what they park included; "
        "others take what the sizes of their files say.",
    )
    turns: Literal["", "fifo", "least_recent", "weighted"] = Field(
        "",
        description="Who comes next on a device of which one trainer at a time computes: who "
        "waited longest, who was served longest ago, or whose project was served least by its "
        "weight. Empty: all compute at once, and all have to fit.",
    )
    parking: Literal["application", "cuda-checkpoint", "none"] = Field(
        "application",
        description="How a trainer frees the device for the next: it moves its tensors to the "
        "host, NVIDIA's program does it, or it keeps them, so that all have to fit.",
    )
    cuda_checkpoint: Path = Field(
        Path("cuda-checkpoint"), description="NVIDIA's program, where `parking` asks for it."
    )
    weights: dict[ProjectId, Annotated[float, Field(gt=0)]] = Field(
        {},
        max_length=1024,
        description="Weights of projects for `weighted`, 1 of all others; their turns are longer.",
    )
    turn_seconds: float = Field(
        10.0, gt=0, description="Time that a trainer computes on while others wait."
    )
    rest_seconds: float = Field(
        0.2, ge=0, description="Time without work after which it lets others in before that."
    )
    drain_seconds: float = Field(
        900.0, gt=0, description="Time that open calls may take then; then the trainer is ended."
    )
    parking_seconds: float = Field(
        120.0, gt=0, description="Time that parking may take; then the trainer is ended."
    )
    restore_seconds: float = Field(
        120.0,
        gt=0,
        description="Time that bringing back may take; then the trainer is started anew, and goes "
        "on from what was saved and the log.",
    )

    @model_validator(mode="after")
    def _parks_one_device_at_a_time(self) -> Self:
        groups = [name for name, one in self.devices.items() if one.devices > 1]
        if groups and self.parking == "cuda-checkpoint":
            raise ValueError(
                f"cuda-checkpoint parks what is on one device, and {groups[0]} is a group"
            )
        if self.clusters and self.parking == "cuda-checkpoint":
            raise ValueError(
                "cuda-checkpoint parks processes of this machine, and none of clusters"
            )
        return self


class TuningSection(Section):
    """Runs that clients train step by step, through the tinker SDK."""

    trainer: Literal["", "null", "lora"] = Field(
        "",
        description="What trains: lora trains adapters of the models of `model_folders`; null "
        "computes nothing, for trying a client; empty: no runs.",
    )
    base_models: list[str] = Field([], description="Names of models that the null trainer takes.")
    model_folders: dict[ModelName, Path] = Field(
        {},
        max_length=32,
        description="Folders of the base models that the lora trainer takes, by name. A name is "
        "for one version of a model: checkpoints are bound to it.",
    )
    samplers: dict[ModelName, EngineAddress] = Field(
        {},
        max_length=32,
        description="Engines that sample in the place of the trainer, by the base model that they "
        "serve under the same name: `unix:///path` or an URL. They must answer "
        "`/inference/v1/generate` and weight versions, as the built-in engine and vLLM do, and "
        "read the folder `tuning` of `data_dir`.",
    )
    sampler_adapters: int = Field(
        4, ge=1, le=1024, description="Places for adapters of each of `samplers`."
    )
    max_rank: int = Field(128, ge=1, le=1024, description="Highest rank of an adapter.")
    full_parameter_trainers: int = Field(
        0,
        ge=0,
        le=64,
        description="Models all of whose parameters may be trained at once, each in processes of "
        "its own; more wait for one to end. 0: none is. As many may be sampled from, and one be "
        "replayed, beside these.",
    )
    full_parameter_processes: int = Field(
        1,
        ge=1,
        le=64,
        description="Most processes that one such model may be trained in, a part of it in each.",
    )
    full_parameter_bytes: int = Field(
        16 * 2**30,
        ge=1,
        description="Most memory of one such process for weights, gradients and moments; a model "
        "that needs more is refused. What a pass holds beside them comes on top.",
    )
    full_parameter_engine: str = Field(
        "",
        pattern=r"^([a-z0-9][a-z0-9_-]{0,63})?$",
        description="Entry point of the group windlass.trainers that trains them; empty: our own.",
    )
    full_parameter_cluster: ClusterName = Field(
        "",
        description="Cluster in which they are trained and sampled from, as pods, unless a "
        "session names another by `windlass.cluster`; empty: here, as processes.",
    )
    adapter_cluster: ClusterName = Field(
        "",
        description="Cluster in which adapters are trained and sampled from, by a pod for each "
        "base model that all projects share; empty: here, as processes.",
    )
    adapter_project: str = Field(
        "",
        pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,127})?$",
        description="Project of the operator's own whose namespace, queue and quota in that "
        "cluster these pods have, and to which the base models are visible.",
    )
    trainer_idle_seconds: float = Field(
        600.0,
        gt=0,
        description="Time without a run or a request after which the process of a base model "
        "ends, and frees its memory.",
    )
    session_seconds: int = Field(
        120, ge=1, description="Time without a heartbeat after which a session expires."
    )
    gap_seconds: int = Field(
        600,
        ge=1,
        description="Time that operations wait for one before them that does not come; then they "
        "fail.",
    )
    result_seconds: int = Field(
        86_400, ge=60, description="Time that a result stays readable; then 410."
    )
    log_seconds: int = Field(
        7 * 86_400,
        ge=60,
        description="Time that what a run was asked is kept after it was done, for replays and "
        "forks; at least as long as its result.",
    )
    snapshot_operations: int = Field(
        200,
        ge=1,
        description="Operations after which the state of a run is saved by itself: what a lost "
        "trainer did since then is computed again.",
    )
    seats: SeatsSection = SeatsSection()
    publishing: PublishingSection = PublishingSection()

    @model_validator(mode="after")
    def _has_a_place_for_adapters(self) -> Self:
        if bool(self.adapter_cluster) != bool(self.adapter_project):
            raise ValueError("adapter_cluster and adapter_project come together")
        return self

    @model_validator(mode="after")
    def _parks_one_process_at_a_time(self) -> Self:
        if self.seats.turns and self.seats.parking != "none" and self.full_parameter_processes > 1:
            raise ValueError(
                "runs of several processes do not park: without seats.turns, or with "
                "seats.parking none, they train beside others; else set full_parameter_processes 1"
            )
        return self
