"""The section of the configuration on the agent inside a server."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from windlass.core.config.sections import Section
from windlass.engine_flags import EngineFlags, SglangFlags


class AgentSection(Section):
    """The agent inside `serve`."""

    enabled: bool = Field(True, description="Run jobs and engines on this machine.")
    name: str = Field("local", description="Name of the machine's cluster.")
    slots: int = Field(1, ge=1, description="Jobs that may run at once.")
    engine_slots: int = Field(4, ge=1, description="Engines that may run at once.")
    gpus: list[Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9/.:_-]{0,99}$")]] | None = (
        Field(None, description="Indexes or ids of the GPUs to use; empty: all.")
    )
    engine_gpus: int = Field(
        1,
        ge=0,
        le=64,
        description="GPUs of each engine, if there are that many; engines share them, but for "
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
    confinement: Literal["required", "preferred", "off"] = Field(
        "preferred",
        description="Confine engines and jobs (bubblewrap). preferred: go without if it "
        "is not possible, and log that.",
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
        1, ge=0, le=16, description="Trainers kept loaded for the next job; up to 0.9 GiB each."
    )
    spare_idle_seconds: int = Field(
        1800, ge=0, description="Seconds after which such a trainer is ended unused; 0: never."
    )
