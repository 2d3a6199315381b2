"""The agent's settings: flags, then `WINDLASS_AGENT_…` variables, then these defaults."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints
from pydantic_settings import BaseSettings, SettingsConfigDict

from windlass.core.config.folders import DataFolder
from windlass.engine_flags import EngineFlags, SglangFlags

# As a list of them has no other sign to go between.
DeviceName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9/.:_-]{0,99}$")]


class AgentSettings(BaseSettings):
    """Everything that can be set on a standalone agent."""

    model_config = SettingsConfigDict(env_prefix="WINDLASS_AGENT_", extra="ignore")

    control_plane: str = Field(
        "", description="Address of the control plane: grpcs://host:port or unix:///path.sock."
    )
    ca_file: Path | None = Field(
        None, description="PEM file of CAs trusted for the control plane; empty: the system's."
    )
    registration_key_file: Path | None = Field(
        None, description="File of the registration key, needed at the first start."
    )
    credential_file: Path | None = Field(
        None, description="File of the agent's credential; empty: under data_dir."
    )
    executor: Literal["process", "kubernetes"] = Field(
        "process", description="Whether jobs run on this machine or in a Kubernetes cluster."
    )
    data_dir: DataFolder = Field(Path("agent-data"), description="Folder of the agent's state.")
    slots: int = Field(1, ge=1, description="Jobs that may run at once.")
    engine_slots: int = Field(4, ge=1, description="Engines that may run at once.")
    gpus: list[DeviceName] | None = Field(
        None, description="Indexes or ids of the GPUs to use; empty: all."
    )
    drain_seconds: float = Field(
        60.0, gt=0, description="Time between SIGTERM and SIGKILL of a runner."
    )
    stop_jobs_on_exit: bool = Field(
        False,
        description="Stop runners when the agent stops, instead of leaving them for its "
        "next start.",
    )
    engine_gpus: int = Field(
        1,
        ge=0,
        le=64,
        description="GPUs of each engine, if the machine has them; engines share them, but for "
        "vLLM's and SGLang's.",
    )
    engine_cpus: int = Field(0, ge=0, le=4096, description="CPUs of each engine; 0: no limit.")
    engine_memory_bytes: int = Field(
        0,
        ge=0,
        le=2**50,
        description="Memory reserved for each engine; 0: none, and a bound by `engine_slots` and "
        "the model's size.",
    )
    engine_drain_seconds: float = Field(
        300.0, ge=0, description="Time that open requests keep an engine that should end."
    )
    exit_drain_seconds: float = Field(
        60.0,
        ge=0,
        description="Time that open requests to engines keep an agent that should stop; new ones "
        "go elsewhere or wait for its next start.",
    )
    confinement: Literal["required", "preferred", "off"] = Field(
        "preferred", description="Confine engines and jobs that are processes (bubblewrap)."
    )
    torchtune_python: Path | None = Field(
        None, description="Python of an environment with the extra `torchtune`; empty: this one."
    )
    vllm_python: Path | None = Field(
        None, description="Python of an environment with vLLM, for engines of kind `vllm`."
    )
    vllm_flags: EngineFlags = Field(
        (), description="Flags of vLLM beside those that Windlass writes, such as `--seed=7`."
    )
    sglang_python: Path | None = Field(
        None, description="Python of an environment with SGLang, for engines of kind `sglang`."
    )
    sglang_flags: SglangFlags = Field(
        (),
        description="Flags of SGLang beside those that Windlass writes, such as `--numa-node=0`.",
    )
    llama_server: Path | None = Field(
        None, description="Program `llama-server` of llama.cpp, for engines of kind `llamacpp`."
    )
    spare_trainers: int = Field(
        1, ge=0, le=16, description="Trainers kept loaded for the next job after the first."
    )
    spare_idle_seconds: int = Field(
        1800, ge=0, description="Seconds after which such a trainer is ended unused; 0: never."
    )
    engine_listener: str = Field(
        "",
        pattern=r"^(|.+:[0-9]{1,5})$",
        description="Address as host:port where gateways reach this machine's engines directly, by "
        "TLS; empty: through the tunnel alone.",
    )
    engine_address: str = Field(
        "",
        pattern=r"^(|.+:[0-9]{1,5})$",
        description="Address as host:port that leads gateways to `engine_listener`, as `windlass "
        "clusters update --address` pins it; empty: that of the listener.",
    )
    weights_folder: Path | None = Field(
        None,
        description="Folder with versions of weights that engines follow: where a volume is "
        "mounted that the server's `tuning.publishing` writes to, or /dev/shm for segments of this "
        "machine's memory; empty: engines get versions from the object store alone.",
    )
    # What follows concerns Kubernetes alone, but for the last two.
    credential_secret: str = Field(
        "",
        description="Secret in the agent's namespace that holds the credential, instead of a file.",
    )
    cluster_id: str = Field(
        "", description="Id of the cluster; empty: as told at enrolment, kept under data_dir."
    )
    kubeconfig: Path | None = Field(
        None, description="File of the kubeconfig; empty: the cluster that the agent's pod runs in."
    )
    cluster_file: Path | None = Field(None, description="YAML file of the cluster's settings.")
    pod_template_file: Path | None = Field(
        None, description="YAML file of a pod template, merged into every job's pod."
    )
    account: str = Field("windlass-agent", description="ServiceAccount of the agent.")
    roles: str = Field(
        "windlass-agent", description="Prefix of the names of the agent's ClusterRoles."
    )
    runner_port: int = Field(
        8443, ge=1, le=65_535, description="Port that runners in pods connect to."
    )
    operations_listen: str = Field(
        "127.0.0.1:0",
        pattern=r"^(|.+:[0-9]{1,5})$",
        description="Address as host:port of health and metrics, without authentication; port 0: "
        "any free port, written to the file `operations` of data_dir; empty: no listener.",
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        "INFO", description="Lowest level that is logged."
    )
