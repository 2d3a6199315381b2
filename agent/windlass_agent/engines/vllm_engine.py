"""vLLM's OpenAI server, in an environment of its own (https://docs.vllm.ai, tested with 0.32)."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import windlass
import windlass_agent
from windlass.confinement import python_paths
from windlass.engine_arguments import (
    ADAPTER_RANK,
    DRAFT_TOKENS,
    NO_FORMAT,
    EngineArguments,
    divided,
)
from windlass.inference_api.images.bounds import MAX_PIXELS
from windlass.inference_api.images.parts import MAX_IMAGES
from windlass.inference_api.requests import MAX_TOP
from windlass.inference_api.routes import ABORT
from windlass.modelfiles.encoders.embedding import MODULES
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
    EngineSpec,
)

CAPABILITIES = EngineCapabilities(
    adapters=True,
    sleep=True,
    cache_salt=True,
    vision=True,
    routes=("/tokenize", ABORT),
    max_concurrency=CONCURRENCY,
)
OLDEST = (0, 32)
# Seconds that open requests have after SIGTERM.
SHUTDOWN_SECONDS = 60
# Requests beyond these are refused with 503, so that another engine may take them.
MAX_REQUESTS = 512
# Those that vLLM has kernels for.
_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
# Without GPUs vLLM would take nine tenths of the machine for keys and values.
CPU_CACHE_BYTES = 2**30
_FLAGS = {
    "context_length": "max-model-len",
    "max_concurrency": "max-num-seqs",
    "dtype": "dtype",
    "tensor_parallel": "tensor-parallel-size",
    "pipeline_parallel": "pipeline-parallel-size",
    "expert_parallel": "enable-expert-parallel",
    "memory_fraction": "gpu-memory-utilization",
    "kv_cache_bytes": "kv-cache-memory-bytes",
    "kv_cache_dtype": "kv-cache-dtype",
    "prefix_caching": "enable-prefix-caching",
    "chunked_prefill": "enable-chunked-prefill",
    "max_batched_tokens": "max-num-batched-tokens",
    "lookup_tokens": "spec-tokens",
    "max_adapter_rank": "max-lora-rank",
    "tool_parser": "tool-call-parser",
    "reasoning_parser": "reasoning-parser",
    "eager": "enforce-eager",
}
# On every node of a group; LeaderWorkerSet sets these variables in each container.
MASTER_PORT = 29_501
_TOGETHER = (
    "--distributed-executor-backend=mp",
    "--nnodes=$(LWS_GROUP_SIZE)",
    "--node-rank=$(LWS_WORKER_INDEX)",
    "--master-addr=$(LWS_LEADER_ADDRESS)",
    f"--master-port={MASTER_PORT}",
)
# Where nothing answers: the executor alone, which only this command starts.
_MEMBER = ("vllm.entrypoints.cli.main", "serve", "--headless")
_ALWAYS = (
    # Lower numbers first, as the gateway writes them.
    "--scheduling-policy=priority",
    f"--max-num-queued-reqs={MAX_REQUESTS}",
    f"--shutdown-timeout={SHUTDOWN_SECONDS}",
    # OpenAI's defaults, not those that a model's author chose.
    "--generation-config=vllm",
    # By itself it takes the one that its first request needs, which cannot do all others.
    "--structured-outputs-config.backend=xgrammar",
    "--enable-prompt-tokens-details",
    # Of models that read such; others take no notice.
    f'--limit-mm-per-prompt={{"image":{MAX_IMAGES},"video":0,"audio":0}}',
    # The gateway writes images into requests; without a list it would fetch from any host.
    "--allowed-media-domains=none.invalid",
    # Counts open requests at /load.
    "--enable-server-load-tracking",
    # Of samplers; the gateway refuses more than OpenAI's 20.
    f"--max-logprobs={MAX_TOP}",
    # Has requests end early and yet say their usage.
    "--enable-scale-out",
    "--disable-uvicorn-access-log",
    "--disable-fastapi-docs",
)
_OF_GENERATION = ("tool_parser", "reasoning_parser", "lookup_tokens", "max_adapter_rank")
_FLAGGED_OTHERWISE = dict.fromkeys(("draft_model", "draft_tokens", "kv_offload_bytes", "task"))
# Of a folder that does not say how it makes vectors, as the built-in engine does it.
_PLAIN_POOLING = '{"pooling_type":"MEAN","use_activation":true}'
_ENVIRONMENT = {
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
    # None but its own: an entry point of any package would be loaded otherwise.
    "VLLM_PLUGINS": "",
    # The gateway refuses larger images by their headers; this bounds what a decoder reads there.
    "VLLM_MAX_IMAGE_PIXELS": str(MAX_PIXELS),
}

# What versions need in vLLM's environment beside what vLLM brings.
_OF_VERSIONS = (("zstandard", (0, 24)), ("xxhash", (3, 5)))
# What an engine that may be trained needs there.
_OF_TRAINING = ("windlass-vllm", (0, 1))
_PLUGIN = "windlass_vllm"
_TRAINED = f"--worker-extension-cls={_PLUGIN}.engine.extension.SharedWeightsWorker"
_MIDDLEWARE = "--middleware=windlass_weight_versions.WeightVersionsMiddleware"
_HOOK = Path(__file__).parent / "vllm" / "hook"
_PACKAGES = [str(Path(package.__path__[0]).parent) for package in (windlass, windlass_agent)]

LOAD_NAMES = LoadNames(
    running="vllm:num_requests_running",
    waiting="vllm:num_requests_waiting",
    prompt_tokens=("vllm:prompt_tokens_total",),
    cached_tokens="vllm:prompt_tokens_cached_total",
    generated_tokens="vllm:generation_tokens_total",
    cache_used="vllm:kv_cache_usage_perc",
    finished_requests="vllm:request_success_total",
)


@dataclass(frozen=True)
class VllmEngine:
    """vLLM, run by the Python of an environment that has it."""

    python: Path
    # The operator's, beside ours.
    flags: tuple[str, ...] = ()
    name: str = "vllm"
    memory_bytes: int = 4 * 2**30
    # It takes nine tenths of a GPU's memory when it starts.
    shares_gpus: bool = False
    updates: bool = False
    """True to take versions of the weights in place; `updating` finds out whether it can."""
    trains: bool = False
    """True if its environment has the plugin that trains; `updating` finds out."""
    is_trained: bool = False
    """True if its engines may be trained: they load no adapters and take no other weights."""

    @property
    def capabilities(self) -> EngineCapabilities:
        """Capabilities of every vLLM, and what its environment adds to them."""
        adapters = not self.is_trained
        return replace(
            CAPABILITIES, weight_updates=self.updates, training=self.trains, adapters=adapters
        )

    def installed(self) -> bool:
        """Returns True if the environment has a vLLM that is new enough."""
        return has_release(self.python, "vllm", OLDEST)

    def updating(self) -> Self:
        """Returns one that takes versions of the weights in place, or can be trained, where its
        environment has what that needs.
        """
        can = all(has_release(self.python, name, oldest) for name, oldest in _OF_VERSIONS)
        return replace(self, updates=can, trains=has_release(self.python, *_OF_TRAINING))

    def trained(self) -> Self:
        """Returns one whose engines may be trained; raises CapabilityMissing without the plugin."""
        if not self.trains:
            raise CapabilityMissing(self.name, "training: its environment has no windlass-vllm")
        return replace(self, updates=False, is_trained=True)

    def sleeps(self, gpus: int) -> bool:
        """Returns True for one with a GPU: its weights go to the machine's memory."""
        return gpus > 0

    def programs(self) -> tuple[Path, ...]:
        """The environment's."""
        return python_paths(self.python)

    def environment(self, spec: EngineSpec) -> dict[str, str]:
        """Variables that keep it from calling home and from writing elsewhere."""
        folders = {
            name: str(spec.scratch / folder)
            for name, folder in (
                ("VLLM_CACHE_ROOT", "vllm"),
                ("VLLM_CONFIG_ROOT", "vllm"),
                ("TRITON_CACHE_DIR", "triton"),
                ("TORCHINDUCTOR_CACHE_DIR", "inductor"),
            )
        }
        # The routes of sleep come with others that steer it, all on a socket of the agent's.
        steered = {"VLLM_SERVER_DEV_MODE": "1"} if spec.sleeps else {}
        # Each would bind its threads to the first cores, which others may have too.
        threads = {} if spec.gpus else {"VLLM_CPU_OMP_THREADS_BIND": "nobind"}
        return _ENVIRONMENT | folders | steered | threads | self._versions(spec) | _training(spec)

    def _versions(self, spec: EngineSpec) -> dict[str, str]:
        """The variables of what puts versions of the weights in place."""
        if not self.updates:
            return {}
        return {
            "PYTHONPATH": str(_HOOK),
            "WINDLASS_PACKAGES": os.pathsep.join(dict.fromkeys(_PACKAGES)),
            "WINDLASS_WEIGHTS": str(spec.scratch),
        }

    def command(self, spec: EngineSpec) -> list[str]:
        """The arguments that start it with its environment's Python."""
        arguments = _completed(spec)
        return [
            str(self.python),
            "-m",
            *(_MEMBER if spec.is_member else ["vllm.entrypoints.openai.api_server"]),
            f"--model={spec.model_dir}",
            f"--served-model-name={spec.served_name}",
            *_loading(spec),
            *flags_of(arguments.model_copy(update=_FLAGGED_OTHERWISE), _FLAGS),
            *_offloading(arguments),
            *_guessing(spec, arguments),
            # The longest that fits, where the whole of the model does not.
            *([] if spec.arguments.context_length else ["--max-model-len=auto"]),
            *(["--enable-sleep-mode"] if spec.sleeps and spec.gpus else []),
            *(["--enable-auto-tool-choice"] if arguments.tool_parser else []),
            *_ALWAYS,
            *([] if spec.is_member else _answering(spec)),
            *([_MIDDLEWARE] if self.updates else []),
            # Last, so that none of ours is taken for the value of one that lacks its own.
            *self.flags,
        ]

    def control(self, endpoint: str) -> EngineControl:
        """A handle on the one that listens at `endpoint`; call inside an event loop."""
        return HttpControl(self.name, self.capabilities, endpoint, LOAD_NAMES)


def _loading(spec: EngineSpec) -> list[str]:
    """The flags of what it loads beside the model, by its task and its nodes."""
    together = _TOGETHER if spec.nodes > 1 else ()
    if spec.arguments.generates_nothing:
        return [*together, *_pooling(spec)]
    if together:
        return list(together)
    if spec.training is not None:
        # Their base moves under adapters.
        return [_TRAINED]
    return [
        "--enable-lora",
        f"--max-loras={spec.max_adapters}",
        # It reads an adapter again that fell out of this cache, and ends if it cannot.
        f"--max-cpu-loras={spec.max_adapters}",
    ]


def _pooling(spec: EngineSpec) -> list[str]:
    """The flags of an engine that makes vectors or ranks, which vLLM tells apart by the files."""
    told = spec.tells_pooling
    if told is None:
        told = (spec.model_dir / MODULES).exists()
    plain = spec.arguments.task == "embed" and not told
    return ["--runner=pooling", *([f"--pooler-config={_PLAIN_POOLING}"] if plain else [])]


def _answering(spec: EngineSpec) -> list[str]:
    # Adapters are loaded into the one process that answers.
    return ["--api-server-count=1", *parse_endpoint(spec.endpoint).flags]


def _guessing(spec: EngineSpec, arguments: EngineArguments) -> list[str]:
    """The flags of what guesses tokens: the prompt, or another model."""
    if spec.draft_dir is None:
        return ["--spec-method=ngram"] if arguments.lookup_tokens else []
    return [
        "--spec-method=draft_model",
        f"--spec-model={spec.draft_dir}",
        f"--spec-tokens={arguments.draft_tokens or DRAFT_TOKENS}",
    ]


def _offloading(arguments: EngineArguments) -> list[str]:
    """The flag of memory beside the GPUs', which vLLM counts in GiB."""
    size = arguments.kv_offload_bytes
    return [f"--kv-offloading-size={size / 2**30}"] if size else []


def _training(spec: EngineSpec) -> dict[str, str]:
    """The variables of an engine that may be trained."""
    if spec.training is None:
        return {}
    return {
        "VLLM_PLUGINS": _PLUGIN,
        "WINDLASS_VLLM_KEY": spec.training.key,
        "WINDLASS_VLLM_CHECKPOINTS": str(spec.training.checkpoints),
    }


def _completed(spec: EngineSpec) -> EngineArguments:
    """The arguments with our choices in the place of vLLM's where these do not fit."""
    given = spec.arguments
    rank = given.max_adapter_rank or ADAPTER_RANK
    ours: dict[str, int | None] = {"max_adapter_rank": next(one for one in _RANKS if one >= rank)}
    if given.generates_nothing:
        ours = dict.fromkeys(_OF_GENERATION)
    if spec.nodes > 1 or spec.training is not None:
        ours["max_adapter_rank"] = None
    if spec.draft_dir is not None:
        ours["lookup_tokens"] = None
    if (spec.gpus and given.tensor_parallel is None) or spec.nodes > 1:
        tensor, pipeline = divided(given, spec.gpus, spec.nodes)
        ours["tensor_parallel"] = tensor
        if pipeline > 1:
            ours["pipeline_parallel"] = pipeline
    ours["max_concurrency"] = given.max_concurrency or CONCURRENCY
    if not spec.gpus and given.kv_cache_bytes is None:
        ours["kv_cache_bytes"] = CPU_CACHE_BYTES
    formats = {"tool_parser", "reasoning_parser"}
    if spec.training is not None and not spec.gpus:
        # A compiled graph may hold weights of its own there.
        ours["eager"] = True
    ours |= {name: None for name in formats if getattr(given, name) == NO_FORMAT}
    return given.model_copy(update=ours)
