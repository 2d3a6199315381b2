"""The port between the agent and whatever generates tokens.

An `EngineKind` is a kind of server: what it can do and how to start it. An
`EngineControl` is one that runs. Requests of tenants do not pass here: they go
to the engine's own OpenAI routes, unparsed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, Self

from windlass.engine_arguments import UNCHOSEN, EngineArguments
from windlass_agent.engines.load import EngineLoad

RERANK = "/v1/rerank"
# Sequences at once of an engine for GPUs, unless its serving says otherwise: what is more waits at
# the gateways, which share places fairly, and not in the engine, which does not.
CONCURRENCY = 256
# Of engines that generate nothing.
_OTHER_TASKS = ("embed", "score")


@dataclass(frozen=True, kw_only=True)
class EngineCapabilities:
    """Capabilities of an engine (windlass.api.clusters.v1.EngineCapabilities)."""

    adapters: bool = False
    weight_updates: bool = False
    sleep: bool = False
    weight_version: int = 0
    routes: tuple[str, ...] = ()
    max_concurrency: int = 0
    """Requests that it answers at once; 0 if that is not known."""
    context_length: int = 0
    """Tokens; 0 until an engine that runs has told it."""
    embeddings: bool = False
    cache_salt: bool = False
    task: str = ""
    """`embed` or `score` for an engine that was started for this alone."""
    vision: bool = False
    """Of a kind: some of its models read images; of an engine: its model does."""
    training: bool = False
    """Of a kind: its engines can be trained in their own memory; of an engine: it may be."""

    def chosen(
        self,
        arguments: EngineArguments,
        nodes: int = 1,
        *,
        sleeps: bool = False,
        vision: bool = False,
        training: bool = False,
    ) -> Self:
        """Returns them as of an engine that was started with these arguments, to sleep or not.

        On several nodes it loads no adapters, whose files lie on the first alone. `vision` says
        whether its model is one that reads images, `training` whether it may be trained.
        """
        most = arguments.max_concurrency or self.max_concurrency
        task, adapters = arguments.task, self.adapters and nodes <= 1
        if task not in _OTHER_TASKS:
            vision = self.vision and vision
            return replace(
                self,
                max_concurrency=most,
                adapters=adapters,
                sleep=sleeps,
                vision=vision,
                training=training,
            )
        return replace(
            self,
            max_concurrency=most,
            sleep=sleeps,
            task=task,
            adapters=False,
            training=False,
            vision=False,
            embeddings=task == "embed",
            routes=(*self.routes, RERANK),
        )


@dataclass(frozen=True, kw_only=True)
class TrainingAccess:
    """Key of the routes of training, and the folder of the engine's checkpoints."""

    key: str
    checkpoints: Path


@dataclass(frozen=True, kw_only=True)
class EngineSpec:
    """Model to serve, and the endpoint to serve it at."""

    model_dir: Path
    served_name: str
    """The model's public id, so that requests need no rewriting."""
    endpoint: str
    """`unix:///path` or `http://host:port`."""
    draft_dir: Path | None = None
    """Folder of the model that guesses tokens for it."""
    max_adapters: int = 4
    arguments: EngineArguments = UNCHOSEN
    cpus: int = 0
    """Number of CPUs allotted to it; 0 for no limit."""
    gpus: int = 0
    """Number of GPUs allotted to it, on each of its nodes."""
    nodes: int = 1
    """Number of nodes that it runs on together."""
    sleeps: bool = False
    """True if it will be asked to sleep."""
    is_member: bool = False
    """True on each node but the first, where nothing answers requests."""
    tells_pooling: bool | None = None
    """Whether the model says how it makes vectors; None: its folder, which is here, does."""
    training: TrainingAccess | None = None
    """Way to train it in its own memory; None for one that may not be trained."""
    scratch: Path = Path("/tmp")  # noqa: S108 - one in memory, of its own
    """Folder that it may write to."""


class EngineError(Exception):
    """An engine refused a control call; `status` is its HTTP status, 0 when it did not answer."""

    def __init__(self, message: str, *, status: int = 0):
        super().__init__(message)
        self.status = status


class CapabilityMissing(EngineError):
    """The engine does not declare what was asked of it."""

    def __init__(self, engine: str, capability: str):
        super().__init__(f"engine {engine!r} does not support {capability}")
        self.capability = capability


class EngineControl(Protocol):
    """Steers one running engine; raises EngineError, or CapabilityMissing before any I/O."""

    async def ready(self) -> bool:
        """Returns True if it answers and has its model loaded; never raises."""

    async def served(self) -> EngineCapabilities:
        """Returns its capabilities with what only a running engine knows, the context length."""

    async def warm(self, model: str, task: str) -> None:
        """Has a small request answered, so that no client waits for what the first one costs.

        `task` is `embed`, `score` or else. Raises EngineError for an engine that fails at it.
        """

    async def open_requests(self) -> int:
        """Number of requests that an end of the engine would cut."""

    async def load(self) -> EngineLoad:
        """Returns its requests now, and its tokens since its start."""

    async def load_adapter(self, adapter_id: str, path: Path) -> None:
        """Serves the adapter in `path` as the model `adapter_id`; one that is loaded stays."""

    async def unload_adapter(self, adapter_id: str) -> None:
        """Stops serving the adapter; one that is not loaded is no error."""

    async def loaded_adapters(self) -> Mapping[str, str]:
        """The adapters that answer now: by each id the folder that it was loaded from."""

    async def update_weights(self, version: int, path: Path) -> None:
        """Puts a version of the medium at `path` in place; requests before it finish on the old.

        Raises EngineError where it is refused, after which the old one answers on.
        """

    async def asleep(self) -> bool:
        """Returns True from the beginning of a sleep until it has woken."""

    async def sleep(self) -> None:
        """Ends its open requests and gives its device's memory back; one that sleeps sleeps on.

        Returns once that is done, also where an earlier call began it. What comes then is refused,
        or held until it wakes.
        """

    async def wake(self) -> None:
        """Takes the memory again, so that requests are answered; one that is awake stays so."""

    async def weight_version(self) -> int:
        """The version of the base weights that answer now."""

    async def close(self) -> None:
        """Releases the connection; the engine runs on."""


class EngineKind(Protocol):
    """One kind of engine."""

    @property
    def name(self) -> str:
        """The word in a workload's `engine` field."""

    @property
    def capabilities(self) -> EngineCapabilities:
        """The capabilities of every engine of this kind."""

    @property
    def memory_bytes(self) -> int:
        """Memory of the machine that it takes beside the model's weights."""

    @property
    def shares_gpus(self) -> bool:
        """True if it takes of a GPU's memory only what it needs, so that others have the rest."""

    def installed(self) -> bool:
        """Returns True if this machine can start it; imports nothing heavy."""

    def sleeps(self, gpus: int) -> bool:
        """Returns True if one with so many GPUs can sleep."""

    def trained(self) -> "EngineKind":
        """Returns one whose engines may be trained; raises CapabilityMissing where none can be."""

    def programs(self) -> tuple[Path, ...]:
        """Programs and libraries that it reads beside the agent's own."""

    def environment(self, spec: EngineSpec) -> dict[str, str]:
        """Variables that it needs beside those of every engine."""

    def command(self, spec: EngineSpec) -> list[str]:
        """The arguments that start it, program first."""

    def control(self, endpoint: str) -> EngineControl:
        """A handle on the one that listens at `endpoint`; call inside an event loop."""
