"""The built-in engine, seen from the agent: no torch is imported here."""

import sys
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from windlass.inference_api.routes import ABORT
from windlass_agent.engines.commands.flags import flags_of
from windlass_agent.engines.endpoint import parse_endpoint
from windlass_agent.engines.http_control import HttpControl
from windlass_agent.engines.load import LoadNames
from windlass_agent.engines.port import (
    CapabilityMissing,
    EngineCapabilities,
    EngineControl,
    EngineKind,
    EngineSpec,
)

_FLAGS = {
    "context_length": "max-model-len",
    "max_concurrency": "max-concurrency",
    "dtype": "dtype",
}
CAPABILITIES = EngineCapabilities(
    adapters=True,
    weight_updates=True,
    sleep=True,
    embeddings=True,
    max_concurrency=8,
    routes=("/tokenize", "/v1/score", "/v1/rerank", ABORT),
)
LOAD_NAMES = LoadNames(
    running="windlass_engine_sequences_running",
    waiting="windlass_engine_sequences_waiting",
    prompt_tokens=("windlass_engine_prompt_tokens_total",),
    generated_tokens="windlass_engine_generated_tokens_total",
)


@dataclass(frozen=True)
class BuiltinEngine:
    """Windlass's torch + transformers + PEFT server, for a machine without a faster one."""

    python: Path = field(default_factory=lambda: Path(sys.executable))
    name: str = "builtin"
    capabilities: EngineCapabilities = CAPABILITIES
    memory_bytes: int = 2 * 2**30
    shares_gpus: bool = True

    def installed(self) -> bool:
        """Returns True if torch, transformers and PEFT can be imported."""
        return all(find_spec(package) for package in ("torch", "transformers", "peft"))

    def sleeps(self, gpus: int) -> bool:
        """Returns True: without a GPU it gives back the machine's memory."""
        return True

    def trained(self) -> EngineKind:
        """Raises CapabilityMissing."""
        raise CapabilityMissing(self.name, "training")

    def programs(self) -> tuple[Path, ...]:
        """No others than the agent's."""
        return ()

    def environment(self, spec: EngineSpec) -> dict[str, str]:
        """No variables."""
        return {}

    def command(self, spec: EngineSpec) -> list[str]:
        """The arguments that start it."""
        # `--flag=value`, so that no value is ever taken for a flag.
        return [
            str(self.python),
            "-m",
            "windlass_agent.engines.builtin",
            f"--model={spec.model_dir}",
            f"--served-model-name={spec.served_name}",
            f"--max-adapters={spec.max_adapters}",
            *flags_of(spec.arguments, _FLAGS),
            *([f"--cpus={spec.cpus}"] if spec.cpus else []),
            *parse_endpoint(spec.endpoint).flags,
        ]

    def control(self, endpoint: str) -> EngineControl:
        """A handle on the one that listens at `endpoint`; call inside an event loop."""
        return HttpControl(self.name, self.capabilities, endpoint, LOAD_NAMES)
