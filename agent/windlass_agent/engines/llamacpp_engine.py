"""llama.cpp's server behind our keeper (https://github.com/ggml-org/llama.cpp)."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from windlass.core import telemetry
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

# The concurrency is its keeper's default.
CAPABILITIES = EngineCapabilities(adapters=True, sleep=True, cache_salt=True, max_concurrency=4)
# Of its `--help`; those that came last.
_NEEDED = ("--lora-init-without-apply", "--cache-ram", "--kv-unified", ".sock", "draft-simple")
_PROBE_SECONDS = 60
_FLAGS = {
    "context_length": "max-model-len",
    "max_concurrency": "max-concurrency",
    "max_batched_tokens": "max-batched-tokens",
    "prefix_caching": "prefix-caching",
    "draft_tokens": "draft-tokens",
}

log = telemetry.logger("engines")
LOAD_NAMES = LoadNames(
    running="llamacpp:requests_processing",
    waiting="llamacpp:requests_deferred",
    # What was known from before is counted apart.
    prompt_tokens=("llamacpp:prompt_tokens_total", "llamacpp:prompt_tokens_cached_total"),
    cached_tokens="llamacpp:prompt_tokens_cached_total",
    generated_tokens="llamacpp:tokens_predicted_total",
)


@dataclass(frozen=True)
class LlamacppEngine:
    """`llama-server`, kept by a program of ours that converts, counts and maps names."""

    program: Path
    # Of the keeper; and whether the program is in another container, by the scratch folder.
    python: Path = Path(sys.executable)
    is_neighbour: bool = False
    name: str = "llamacpp"
    capabilities: EngineCapabilities = CAPABILITIES
    # The conversion to GGUF needs torch for a while.
    memory_bytes: int = 2 * 2**30
    shares_gpus: bool = True

    def installed(self) -> bool:
        """Returns True if the program runs and is new enough."""
        try:
            done = subprocess.run(
                [str(self.program), "--help"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_PROBE_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            log.error("llamacpp_unavailable", program=str(self.program), reason=str(error))
            return False
        if lacking := [word for word in _NEEDED if word not in done.stdout]:
            reason = f"it is no llama-server, or too old: it lacks {', '.join(lacking)}"
            log.error("llamacpp_unavailable", program=str(self.program), reason=reason)
            return False
        log.info("llamacpp_found", program=str(self.program))
        return True

    def sleeps(self, gpus: int) -> bool:
        """Returns True: its server ends, and its keeper starts another."""
        return True

    def trained(self) -> EngineKind:
        """Raises CapabilityMissing."""
        raise CapabilityMissing(self.name, "training")

    def programs(self) -> tuple[Path, ...]:
        """The server and the libraries beside it, as llama.cpp's releases have them."""
        program = self.program.resolve()
        return (self.program, program, *sorted(program.parent.glob("lib*.so*")))

    def environment(self, spec: EngineSpec) -> dict[str, str]:
        """No variables."""
        return {}

    def command(self, spec: EngineSpec) -> list[str]:
        """The arguments that start the keeper with this interpreter."""
        return [
            str(self.python),
            "-m",
            "windlass_agent.engines.llamacpp",
            f"--program={self.program}",
            f"--model={spec.model_dir}",
            f"--served-model-name={spec.served_name}",
            f"--scratch={spec.scratch}",
            f"--max-adapters={spec.max_adapters}",
            *flags_of(spec.arguments.model_copy(update={"draft_model": None}), _FLAGS),
            *([f"--draft={spec.draft_dir}"] if spec.draft_dir else []),
            *([f"--cpus={spec.cpus}"] if spec.cpus else []),
            *(["--on-gpus"] if spec.gpus else []),
            *(["--neighbour"] if self.is_neighbour else []),
            *parse_endpoint(spec.endpoint).flags,
        ]

    def control(self, endpoint: str) -> EngineControl:
        """A handle on the one that listens at `endpoint`; call inside an event loop."""
        return HttpControl(self.name, self.capabilities, endpoint, LOAD_NAMES)
