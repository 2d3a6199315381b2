"""Arguments of engines: what they mean, their bounds, and which kind of engine takes which.

docs/reference/engine-arguments.md is made of it.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.modelfiles.formats import Formats
from windlass.modelfiles.naming import MODEL_NAME_LENGTH

# Names of parsers, which become arguments of a command.
_Word = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]{0,63}$")]


class EngineArguments(BaseModel):
    """Arguments with which an engine runs a model; what is not set is the engine's choice."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    task: Literal["generate", "embed", "score"] | None = Field(
        None,
        description="What the engine is started for, by default the task of the model: an engine "
        "has one, and `score` ranks texts by their fit to a query.",
    )
    context_length: Annotated[int, Field(ge=16, le=2**24)] | None = Field(
        None, description="Tokens of a prompt and its answer together."
    )
    max_concurrency: Annotated[int, Field(ge=1, le=4096)] | None = Field(
        None, description="Sequences that are generated at once."
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] | None = Field(
        None, description="Type of the weights in memory."
    )
    tensor_parallel: Annotated[int, Field(ge=1, le=64)] | None = Field(
        None,
        description="GPUs that hold one copy of the weights together; by default all that the "
        "engine has.",
    )
    pipeline_parallel: Annotated[int, Field(ge=1, le=64)] | None = Field(
        None,
        description="Groups of such GPUs, each with a part of the layers; by default one for each "
        "node.",
    )
    expert_parallel: bool | None = Field(
        None,
        description="Whether these GPUs have whole experts each, of a model with experts, rather "
        "than a part of every one.",
    )
    memory_fraction: Annotated[float, Field(ge=0.05, le=0.98)] | None = Field(
        None, description="Part of each GPU's memory that the engine takes."
    )
    kv_cache_bytes: Annotated[int, Field(ge=2**20, le=2**44)] | None = Field(
        None, description="Bytes for the keys and values of tokens, on each device."
    )
    kv_cache_dtype: Literal["auto", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2"] | None = Field(
        None, description="Type of these keys and values."
    )
    prefix_caching: bool | None = Field(
        None, description="Whether prompts that begin alike share what was computed for them."
    )
    chunked_prefill: bool | None = Field(
        None, description="Whether long prompts are read in parts, between the tokens of others."
    )
    max_batched_tokens: Annotated[int, Field(ge=32, le=2**24)] | None = Field(
        None, description="Tokens that one step of the engine reads at most."
    )
    kv_offload_bytes: Annotated[int, Field(ge=2**20, le=2**44)] | None = Field(
        None,
        description="Bytes of the machine's memory for keys and values that the GPUs have no room "
        "for.",
    )
    lookup_tokens: Annotated[int, Field(ge=1, le=16)] | None = Field(
        None,
        description="Tokens that are guessed at once from what was said before, and checked in "
        "one step: faster where answers repeat their prompts. Requests then have no `logit_bias` "
        "and no `min_p`.",
    )
    draft_model: Annotated[str, Field(min_length=1, max_length=MODEL_NAME_LENGTH)] | None = Field(
        None,
        description="Name of a smaller model with the same vocabulary, of the same project or for "
        "everyone, that guesses tokens, which the model checks in one step: its answers stay as "
        "they are. Not beside `lookup_tokens`. With vLLM, requests then have no `logit_bias` and "
        "no `min_p`.",
    )
    draft_tokens: Annotated[int, Field(ge=1, le=16)] | None = Field(
        None, description="Tokens that `draft_model` guesses at once, 3 by default."
    )
    max_adapter_rank: Annotated[int, Field(ge=1, le=512)] | None = Field(
        None, description="Highest rank of the adapters that the engine loads."
    )
    tool_parser: _Word | None = Field(
        None,
        description="The engine's name of the format of the model's tool calls, by default the "
        "one of its chat template; `none` for none.",
    )
    reasoning_parser: _Word | None = Field(
        None,
        description="The engine's name of the format of the model's reasoning, likewise.",
    )
    eager: bool | None = Field(
        None, description="Whether to do without compilation: starts sooner, answers slower."
    )

    @property
    def generates_nothing(self) -> bool:
        """True for an engine that makes vectors or ranks texts."""
        return self.task in ("embed", "score")


# The kind that has to be told the task of a model, and the formats of tool calls and reasoning;
# others find out.
TOLD_FORMATS = "vllm"
# Of these arguments: no format, whatever the model's template looks like.
NO_FORMAT = "none"
# The kind of which one engine may run on several nodes.
GROUPED = "vllm"
# The kinds that can sleep (ADR 51).
SLEEPING = frozenset({"builtin", "llamacpp", "vllm"})
# Highest rank of adapters where nothing else is set; vLLM's own default is 16.
ADAPTER_RANK = 64
# Tokens that a draft model guesses at once where nothing else is set; llama.cpp's own default.
DRAFT_TOKENS = 3
# Every argument is the engine's choice.
UNCHOSEN = EngineArguments()
# The arguments that each kind takes.
TAKEN: dict[str, frozenset[str]] = {
    "builtin": frozenset({"context_length", "max_concurrency", "dtype"}),
    "llamacpp": frozenset(
        {
            "context_length",
            "draft_model",
            "draft_tokens",
            "max_batched_tokens",
            "max_concurrency",
            "prefix_caching",
        }
    ),
    # Its room for keys and values is a part of the memory, and the tokens that it guesses are from
    # what all its requests have said, whoever sent them (ADR 48). Its drafts have not been run.
    "sglang": frozenset(EngineArguments.model_fields)
    - {
        "draft_model",
        "draft_tokens",
        "kv_cache_bytes",
        "kv_offload_bytes",
        "lookup_tokens",
        "pipeline_parallel",
        "task",
    },
    "vllm": frozenset(EngineArguments.model_fields),
}


# Those that are about devices, which no model knows.
OF_DEVICES = frozenset(
    [
        "expert_parallel",
        "kv_cache_bytes",
        "kv_offload_bytes",
        "memory_fraction",
        "pipeline_parallel",
        "tensor_parallel",
    ]
)
# Those that name another model, which a project's serving alone can.
OF_SERVINGS = frozenset(["draft_model", "draft_tokens"])


def chosen(arguments: EngineArguments) -> dict[str, Any]:
    """The arguments that are set, by name."""
    return arguments.model_dump(exclude_none=True)


def completed(arguments: EngineArguments, derived: EngineArguments) -> EngineArguments:
    """The arguments with others in the place of those that are not set."""
    given = chosen(arguments)
    unset = {name: value for name, value in chosen(derived).items() if name not in given}
    return arguments.model_copy(update=unset) if unset else arguments


def of_files(kind: str, formats: Formats, task: str = "") -> EngineArguments:
    """The arguments of a kind of engine that a model's files say: its formats and its task.

    One that generates has no word for its task, as in releases that know no other.
    """
    if kind != TOLD_FORMATS:
        return UNCHOSEN
    known = {"tool_parser": formats.tools, "reasoning_parser": formats.reasoning, "task": task}
    return UNCHOSEN.model_copy(update={name: word for name, word in known.items() if word})


def preset_arguments(
    given: Mapping[str, Mapping[str, Any]],
) -> tuple[tuple[str, EngineArguments], ...]:
    """The arguments of a preset by kind of engine; raises ValueError that names the field."""
    return tuple((kind, _of_preset(kind, values)) for kind, values in given.items())


def _of_preset(kind: str, values: Mapping[str, Any]) -> EngineArguments:
    if kind not in TAKEN:
        raise ValueError(f"{kind}: the engines are {', '.join(sorted(TAKEN))}.")
    try:
        arguments = EngineArguments(**values)
    except ValidationError as error:
        first = error.errors()[0]
        at = ".".join(map(str, (kind, *first["loc"])))
        raise ValueError(f"{at}: {first['msg']}.") from error
    if refused := not_taken(kind, arguments):
        raise ValueError(f"{kind}.{refused}: the engine does not take it.")
    if of_devices := OF_DEVICES.intersection(chosen(arguments)):
        raise ValueError(f"{kind}.{min(of_devices)}: is of devices, and no preset knows them.")
    if of_servings := OF_SERVINGS.intersection(chosen(arguments)):
        raise ValueError(f"{kind}.{min(of_servings)}: is of a serving, and no preset has one.")
    return arguments


def stored(values: Mapping[str, Any]) -> EngineArguments:
    """The arguments of a row; those that only a newer release knows are left out."""
    try:
        return EngineArguments(**values)
    except ValidationError as error:
        unknown = {str(one["loc"][0]) for one in error.errors()}
        return EngineArguments(**{name: values[name] for name in values.keys() - unknown})


def not_taken(engine: str, arguments: EngineArguments) -> str | None:
    """Returns the first argument that is set and that the engine does not take; None for none."""
    taken = TAKEN.get(engine, frozenset())
    return next((name for name in chosen(arguments) if name not in taken), None)


def require_guesses(arguments: EngineArguments, nodes: int = 1) -> None:
    """Raises ValueError, beginning with an argument's name, where tokens cannot be guessed so."""
    if arguments.draft_tokens and not arguments.draft_model:
        raise ValueError("draft_tokens is for engines with a draft_model, and none is set.")
    if not arguments.draft_model:
        return
    if arguments.lookup_tokens:
        raise ValueError(
            "lookup_tokens is not for engines with a draft_model: one of them guesses."
        )
    if arguments.generates_nothing:
        raise ValueError(f"draft_model is not for engines of the task {arguments.task!r}.")
    if nodes > 1 or (arguments.pipeline_parallel or 1) > 1:
        raise ValueError(
            "draft_model is for engines on one node without pipeline_parallel: a draft is not "
            "divided by layers."
        )


def require_gpus(arguments: EngineArguments, gpus: int, nodes: int = 1) -> None:
    """Raises ValueError for an argument that means nothing to an engine with so many GPUs.

    They are those of each of its nodes.
    """
    if arguments.kv_offload_bytes and not gpus:
        raise ValueError("kv_offload_bytes is for engines with GPUs, and this one has none.")
    divided(arguments, gpus, nodes)


def divided(arguments: EngineArguments, gpus: int, nodes: int = 1) -> tuple[int, int]:
    """Returns how an engine is divided over all of its GPUs: `tensor_parallel`, then
    `pipeline_parallel`.

    `gpus` are those of each node; without GPUs each node has one part. A group of GPUs that talks
    most is kept within a node where nothing else is said. Raises ValueError with the numbers.
    """
    total = max(1, gpus) * nodes
    tensor, pipeline = arguments.tensor_parallel, arguments.pipeline_parallel
    if pipeline is None:
        pipeline = nodes if tensor is None or nodes == 1 else max(1, total // tensor)
    if tensor is None:
        tensor = max(1, total // pipeline)
    whole = tensor * pipeline
    if nodes == 1 and not gpus:
        # Processes of one machine, as many as one likes.
        return tensor, pipeline
    if whole > total or (nodes > 1 and whole != total):
        each = f"{nodes} nodes with {max(1, gpus)} each" if nodes > 1 else "one node"
        raise ValueError(
            f"tensor_parallel {tensor} times pipeline_parallel {pipeline} is {whole}; the engine "
            f"has {total} GPUs ({each})."
        )
    return tensor, pipeline


def to_message(arguments: EngineArguments) -> pb.EngineArguments:
    """The arguments as the services exchange them."""
    return pb.EngineArguments(**chosen(arguments))


def from_message(message: pb.EngineArguments) -> EngineArguments:
    """The arguments of a message; raises pydantic's ValidationError for those out of bounds."""
    return EngineArguments(**{field.name: value for field, value in message.ListFields()})
