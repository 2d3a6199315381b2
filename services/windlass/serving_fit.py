"""Estimates of whether a model fits on devices, over how many, and with which context; pure.

The engine measures what is left when it starts; this says beforehand what to expect.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from windlass.engine_arguments import ADAPTER_RANK, UNCHOSEN, EngineArguments, divided
from windlass.modelfiles.footprint import Footprint

GIB = 2**30
# vLLM's own default.
MEMORY_FRACTION = 0.92
# Of a device, for activations, graphs and libraries; and for each to talk to others.
WORKSPACE_BYTES = 3 * GIB // 2
TALK_BYTES = GIB // 2
# Of an engine, whatever it runs on: the libraries alone take more.
LEAST_WORKSPACE_BYTES = GIB // 2
# A context shorter than this is of little use: the model does not fit.
LEAST_CONTEXT = 2048
MAX_DEVICES = 64


@dataclass(frozen=True, slots=True)
class Fit:
    """A way to serve a model on several devices; bytes are those of each device."""

    # All of them, on every node.
    devices: int
    weight_bytes: int
    # Of the model that guesses.
    draft_bytes: int
    adapter_bytes: int
    workspace_bytes: int
    cache_bytes: int
    context_length: int
    # Requests of the whole context that the cache holds at once.
    requests: float


class DoesNotFit(ValueError):
    """The model cannot be served so; the message has the numbers."""


def fit(
    model: Footprint,
    *,
    devices: int,
    memory_bytes: int,
    arguments: EngineArguments = UNCHOSEN,
    adapters: int = 0,
    nodes: int = 1,
    draft: Footprint | None = None,
) -> Fit:
    """Returns how a model is served on all of so many devices of each node, with so much memory
    each.

    Its context is the longest that one request can have, or the one that the arguments say. A
    `draft` keeps keys and values of the same tokens. Raises DoesNotFit.
    """
    try:
        tensor, pipeline = divided(arguments, devices, nodes)
    except ValueError as error:
        raise DoesNotFit(str(error)) from error
    _require_heads("model", model, tensor)
    if draft is not None:
        _require_heads("draft model", draft, tensor)
    devices = tensor * pipeline
    if nodes > 1:
        # Merged copies answer in the place of adapters.
        adapters = 0
    usable = int(memory_bytes * (arguments.memory_fraction or MEMORY_FRACTION))
    width = weight_width(arguments)
    weights = -(-model.held_bytes(width) // devices)
    drafts = -(-draft.held_bytes(width) // devices) if draft else 0
    rank = arguments.max_adapter_rank or ADAPTER_RANK
    loras = -(-model.adapter_bytes * rank * adapters // devices)
    workspace = WORKSPACE_BYTES + (TALK_BYTES if devices > 1 else 0)
    room = usable - weights - drafts - loras - workspace
    cache = min(room, arguments.kv_cache_bytes or room)
    kv_width = _kv_width(arguments)

    def request(tokens: int) -> int:
        parts = pipeline * min(tensor, model.kv_heads)
        size = model.request_bytes(tokens) // parts
        if draft is not None:
            size += draft.request_bytes(tokens) // min(tensor, draft.kv_heads)
        return max(1, size * kv_width // 2)

    least = min(arguments.context_length or LEAST_CONTEXT, model.context_length)
    if cache < request(least):
        raise DoesNotFit(
            f"Of each GPU {_gib(usable)} can be used: weights take {_gib(weights)}, "
            f"{f'those of the draft {_gib(drafts)}, ' if draft else ''}adapters "
            f"{_gib(loras)} and the engine about {_gib(workspace)}, which leaves "
            f"{_gib(max(0, cache))} of the {_gib(request(least))} that {least} tokens need."
        )
    context = least if arguments.context_length else _longest(cache, request, model.context_length)
    requests = cache / request(context)
    return Fit(devices, weights, drafts, loras, workspace, cache, context, requests)


@dataclass(frozen=True, slots=True)
class LeastNeed:
    """Bytes without which no engine of a model starts, of all of its devices together."""

    weight_bytes: int
    # Of them, those of the model that guesses.
    draft_bytes: int
    # Of the keys and values of one request of so many tokens.
    cache_bytes: int
    tokens: int
    workspace_bytes: int = LEAST_WORKSPACE_BYTES

    @property
    def total(self) -> int:
        """All of them."""
        return self.weight_bytes + self.cache_bytes + self.workspace_bytes


def least_need(
    model: Footprint,
    *,
    arguments: EngineArguments = UNCHOSEN,
    draft: Footprint | None = None,
    width: int = 0,
) -> LeastNeed:
    """Returns what an engine needs for sure; where it has less, waiting for it is of no use.

    `width` are the bytes of each weight that it holds, 0 for those of the files.
    """
    drafts = draft.held_bytes(width) if draft else 0
    tokens = min(arguments.context_length or LEAST_CONTEXT, model.context_length)
    cache = model.request_bytes(tokens) + (draft.request_bytes(tokens) if draft else 0)
    cache = cache * _kv_width(arguments) // 2
    if arguments.generates_nothing:
        tokens = cache = 0
    cache = max(cache, arguments.kv_cache_bytes or 0)
    return LeastNeed(model.held_bytes(width) + drafts, drafts, cache, tokens)


def weight_width(arguments: EngineArguments) -> int:
    """The bytes of each weight that an engine for GPUs holds: by itself it takes 16 bits."""
    return 4 if arguments.dtype == "float32" else 2


def _kv_width(arguments: EngineArguments) -> int:
    """The bytes of a key or value."""
    given = arguments.kv_cache_dtype or "auto"
    if given == "auto":
        return weight_width(arguments)
    return 1 if given.startswith("fp8") else 2


def _require_heads(what: str, model: Footprint, tensor: int) -> None:
    if model.heads % tensor:
        raise DoesNotFit(
            f"The {what}'s {model.heads} attention heads cannot be divided over {tensor} GPUs."
        )


def fits(
    model: Footprint,
    *,
    devices: int,
    memory_bytes: int,
    arguments: EngineArguments = UNCHOSEN,
    adapters: int = 0,
    nodes: int = 1,
    draft: Footprint | None = None,
) -> Iterator[Fit | DoesNotFit]:
    """Yields how a model is served on one device of each node, on two, on four, up to so many."""
    number = 1
    while number <= devices:
        try:
            yield fit(
                model,
                devices=number,
                memory_bytes=memory_bytes,
                arguments=arguments,
                adapters=adapters,
                nodes=nodes,
                draft=draft,
            )
        except DoesNotFit as error:
            yield error
        number *= 2


def _longest(cache: int, request: Callable[[int], int], most: int) -> int:
    """The longest context of which one request fits."""
    least = 1
    while least < most:
        middle = (least + most + 1) // 2
        if request(middle) <= cache:
            least = middle
        else:
            most = middle - 1
    return least


def _gib(number: int) -> str:
    return f"{number / GIB:.1f} GiB"
