"""The agent's settings: flags, then `WINDLASS_AGENT_…` variables, then these defaults."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints
from pydantic_settings import BaseSettings, SettingsConfigDict

# As a list of them has no other sign to go between.
DeviceName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9/.:_-]{0,99}$")]


class AgentSettings(BaseSettings):
    """Everything that can be set on a standalone agent."""

    model_config = SettingsConfigDict(env_prefix="WINDLASS_AGENT_", extra="ignore")

    control_plane: str = Field("", description="grpcs://host:port, or unix:///path.sock")
    ca_file: Path | None = Field(None, description="PEM; empty: the system's authorities.")
    registration_key_file: Path | None = Field(None, description="For the first start.")
    credential_file: Path | None = Field(None, description="Empty: under data_dir.")
    executor: Literal["process", "kubernetes"] = Field(
        "process", description="Whether jobs run on this machine or in a cluster."
    )
    data_dir: Path = Field(Path("agent-data"), description="What the agent remembers.")
    slots: int = Field(1, ge=1, description="Jobs that may run at once.")
    engine_slots: int = Field(4, ge=1, description="Engines that may run at once.")
    gpus: list[DeviceName] | None = Field(
        None, description="Indexes or ids of the GPUs to give out; empty: all that are found."
    )
    drain_seconds: float = Field(60.0, gt=0, description="From SIGTERM to SIGKILL of a runner.")
    stop_jobs_on_exit: bool = Field(
        False, description="Stop runners with the agent instead of leaving them to its next life."
    )
    engine_gpus: int = Field(
        1, ge=0, le=64, description="Of each engine, where there are so many; shared by engines."
    )
    engine_cpus: int = Field(0, ge=0, le=4096, description="Of each engine; 0: no bound.")
    engine_memory_bytes: int = Field(
        0, ge=0, le=2**50, description="Of each engine; 0: most of what there is."
    )
    confinement: Literal["required", "preferred", "off"] = Field(
        "preferred", description="Walls around engines and jobs (bubblewrap), of processes."
    )
    torchtune_python: Path | None = Field(
        None, description="Python of an environment with the extra `torchtune`; empty: this one."
    )
    spare_trainers: int = Field(
        1, ge=0, le=16, description="Trainers that wait for a job, once one has run here."
    )
    # What follows concerns Kubernetes alone.
    credential_secret: str = Field(
        "", description="Secret in the agent's namespace that keeps the credential, not a file."
    )
    cluster_id: str = Field("", description="Empty: what enrolment said, under data_dir.")
    kubeconfig: Path | None = Field(None, description="Empty: the cluster whose pod this is.")
    cluster_file: Path | None = Field(None, description="YAML; see the settings of a cluster.")
    pod_template_file: Path | None = Field(None, description="YAML, merged into every job's pod.")
    account: str = Field("windlass-agent", description="The agent's own ServiceAccount.")
    roles: str = Field("windlass-agent", description="Begins the names of its ClusterRoles.")
    runner_port: int = Field(8443, ge=1, le=65_535, description="Where runners in pods call.")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        "INFO", description="The least that is logged."
    )
