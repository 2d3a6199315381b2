"""SGLang (https://docs.sglang.ai, written to 0.5.23), in an environment of its own."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from windlass.confinement import python_paths
from windlass.engine_arguments import ADAPTER_RANK, NO_FORMAT, EngineArguments
from windlass.inference_api.routes import ABORT
from windlass_agent.engines.commands.flags import flags_of
from windlass_agent.engines.commands.releases import has_release
from windlass_agent.engines.endpoint import parse_endpoint
from windlass_agent.engines.http_control import HttpControl
from windlass_agent.engines.load import LoadNames
from windlass_agent.engines.port import (
    CONCURRENCY,
    CapabilityMissing,
    EngineCapabilities,
    EngineControl,
    EngineKind,
    EngineSpec,
)

CAPABILITIES = EngineCapabilities(
    adapters=True, cache_salt=True, routes=(ABORT,), max_concurrency=CONCURRENCY
)
# The first whose cache knows salts by themselves, and which has `/ready`.
OLDEST = (0, 5, 23)
# Waiting requests beyond these are refused with 503, so that another engine may take them.
MAX_WAITING = 512
_FLAGS = {
    "context_length": "context-length",
    "max_concurrency": "max-running-requests",
    "dtype": "dtype",
    "tensor_parallel": "tp-size",
    "memory_fraction": "mem-fraction-static",
    "kv_cache_dtype": "kv-cache-dtype",
    "max_adapter_rank": "max-lora-rank",
    "tool_parser": "tool-call-parser",
    "reasoning_parser": "reasoning-parser",
}
_SWITCHED = (
    "prefix_caching", "chunked_prefill", "max_batched_tokens", "eager", "expert_parallel"
)  # fmt: skip
_ALWAYS = (
    "--enable-lora",
    # Those of the model's own layers, whatever they are called.
    "--lora-target-modules=all",
    # Lower numbers first, as the gateway writes them; what has begun goes on.
    "--enable-priority-scheduling",
    "--schedule-low-priority-values-first",
    "--disable-priority-preemption",
    f"--max-queued-requests={MAX_WAITING}",
    # OpenAI's defaults, not those that a model's author chose.
    "--sampling-defaults=openai",
    "--grammar-backend=xgrammar",
    "--enable-metrics",
    "--enable-cache-report",
    "--log-level-http=warning",
)

LOAD_NAMES = LoadNames(
    running="sglang:num_running_reqs",
    waiting="sglang:num_queue_reqs",
    prompt_tokens=("sglang:prompt_tokens_total",),
    cached_tokens="sglang:cached_tokens_total",
    generated_tokens="sglang:generation_tokens_total",
    cache_used="sglang:token_usage",
    split="priority",
)


@dataclass(frozen=True)
class SglangEngine:
    """SGLang, run by the Python of an environment that has it, behind a keeper of ours."""

    python: Path
    # The operator's, beside ours.
    flags: tuple[str, ...] = ()
    # Of the keeper; and whether SGLang is in another container, by the scratch folder.
    own_python: Path = Path(sys.executable)
    is_neighbour: bool = False
    name: str = "sglang"
    capabilities: EngineCapabilities = CAPABILITIES
    memory_bytes: int = 6 * 2**30
    # It takes nearly all of a GPU's memory when it starts.
    shares_gpus: bool = False

    def installed(self) -> bool:
        """Returns True if the environment has an SGLang that is new enough."""
        return has_release(self.python, "sglang", OLDEST)

    def sleeps(self, gpus: int) -> bool:
        """Returns False: a request that comes while it releases its memory would end it."""
        return False

    def trained(self) -> EngineKind:
        """Raises CapabilityMissing."""
        raise CapabilityMissing(self.name, "training")

    def programs(self) -> tuple[Path, ...]:
        """The environment's."""
        return python_paths(self.python)

    def environment(self, spec: EngineSpec) -> dict[str, str]:
        """Variables that keep it from writing elsewhere."""
        return {
            name: str(spec.scratch / folder)
            for name, folder in (
                ("SGLANG_CACHE_DIR", "sglang"),
                ("FLASHINFER_WORKSPACE_BASE", "flashinfer"),
                ("TRITON_CACHE_DIR", "triton"),
                ("TORCHINDUCTOR_CACHE_DIR", "inductor"),
            )
        }

    def command(self, spec: EngineSpec) -> list[str]:
        """The arguments that start the keeper, and behind `--` SGLang's."""
        return [
            str(self.own_python),
            "-m",
            "windlass_agent.engines.sglang",
            f"--python={self.python}",
            f"--served-model-name={spec.served_name}",
            f"--scratch={spec.scratch}",
            f"--max-adapters={spec.max_adapters}",
            *(["--neighbour"] if self.is_neighbour else []),
            *parse_endpoint(spec.endpoint).flags,
            "--",
            *self.flags_of(spec),
        ]

    def flags_of(self, spec: EngineSpec) -> tuple[str, ...]:
        """SGLang's flags, but for those of its address."""
        return (
            f"--model-path={spec.model_dir}",
            # The base takes a place as well.
            f"--max-loras-per-batch={spec.max_adapters + 1}",
            f"--max-loaded-loras={spec.max_adapters + 1}",
            *_chosen(spec),
            *_ALWAYS,
            *self.flags,
        )

    def control(self, endpoint: str) -> EngineControl:
        """A handle on the one that listens at `endpoint`; call inside an event loop."""
        return HttpControl(self.name, self.capabilities, endpoint, LOAD_NAMES)


def _chosen(spec: EngineSpec) -> Iterator[str]:
    """The flags of a serving's arguments, with our choices where SGLang's do not fit."""
    given = spec.arguments
    ours: dict[str, object] = {
        "max_adapter_rank": given.max_adapter_rank or ADAPTER_RANK,
        "max_concurrency": given.max_concurrency or CONCURRENCY,
    }
    tensor = given.tensor_parallel or spec.gpus or None
    ours["tensor_parallel"] = tensor
    if given.kv_cache_dtype == "fp8":
        ours["kv_cache_dtype"] = "fp8_e4m3"
    for name in ("tool_parser", "reasoning_parser"):
        # By itself it has none; asked to, it finds the one of the chat template.
        word = getattr(given, name) or "auto"
        ours[name] = None if word == NO_FORMAT else word
    # Switches there that are turned off, or sizes.
    apart = dict.fromkeys(_SWITCHED)
    yield from flags_of(given.model_copy(update=ours | apart), _FLAGS)
    if given.expert_parallel and tensor:
        # It has no other number beside tensor parallelism.
        yield f"--ep-size={tensor}"
    yield from _switches(given)


def _switches(given: EngineArguments) -> Iterator[str]:
    if given.prefix_caching is False:
        yield "--disable-radix-cache"
    if given.chunked_prefill is False:
        yield "--chunked-prefill-size=-1"
    if given.max_batched_tokens:
        yield f"--max-prefill-tokens={given.max_batched_tokens}"
        if given.chunked_prefill is not False:
            yield f"--chunked-prefill-size={given.max_batched_tokens}"
    if given.eager:
        yield "--cuda-graph-backend-decode=disabled"
        yield "--cuda-graph-backend-prefill=disabled"
