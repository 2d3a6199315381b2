"""The document of a tenant's loss, as torch.fx traces it."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Literal

import msgspec

from windlass.tuning_api.losses.allowed import FUNCTIONS, KEYWORDS, METHODS

LONGEST = 256 * 1024
_NODES, _INPUTS, _DEPTH, _ARGUMENTS, _METRICS = 256, 16, 4, 16, 32
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_METRIC = re.compile(r"custom/[a-z0-9_./-]{1,64}:(sum|mean)")


class InvalidLossGraph(ValueError):
    """A loss that is not made of what is allowed; the message says why, without a full stop."""


class LossInput(msgspec.Struct, frozen=True):
    """An input by name; `rank` 0 is a number, 1 a value of each token, 2 several of each."""

    name: str
    rank: Literal[0, 1, 2]


class LossNode(msgspec.Struct, frozen=True):
    """One step; `args` and `kwargs` name earlier ones as `{"ref": name}`."""

    op: Literal["placeholder", "call_function", "call_method", "output"]
    name: str
    target: str
    args: list[Any] = []
    kwargs: dict[str, Any] = {}


class LossNodes(msgspec.Struct, frozen=True):
    """Steps in the order of their execution."""

    nodes: list[LossNode]
    format: Literal[1] = 1


class LossGraph(msgspec.Struct, frozen=True):
    """A loss of one sequence's log-probabilities and inputs: a number, and metrics by name."""

    inputs: list[LossInput]
    graph: LossNodes

    @property
    def result(self) -> tuple[str, dict[str, str]]:
        """The node that is the loss, and that of each metric."""
        loss, metrics = _unwrapped(self.graph.nodes[-1].args[0])
        found = {name: str(value["ref"]) for name, value in metrics["dict"].items()}
        return str(loss["ref"]), found


@lru_cache(maxsize=64)
def read_graph(document: str) -> LossGraph:
    """Reads a loss; raises InvalidLossGraph for one that is not made of what is allowed."""
    if len(document) > LONGEST:
        raise _invalid(f"it has more than {LONGEST} characters")
    try:
        graph = msgspec.json.decode(document, type=LossGraph)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise _invalid(str(error)[:200]) from None
    nodes = graph.graph.nodes
    if not 2 <= len(nodes) <= _NODES or not 1 <= len(graph.inputs) <= _INPUTS:
        raise _invalid(f"it has 1 to {_INPUTS} inputs and 2 to {_NODES} nodes")
    _check_inputs(graph)
    known: set[str] = set()
    for node in nodes:
        if not _NAME.fullmatch(node.name) or node.name in known:
            raise _invalid("names of nodes are words, each of one node")
        _check_node(node, known)
        known.add(node.name)
    if [node.op == "output" for node in nodes] != [False] * (len(nodes) - 1) + [True]:
        raise _invalid("its last node, and no other, is the output")
    _check_result(nodes[-1])
    return graph


def _check_inputs(graph: LossGraph) -> None:
    names = [given.name for given in graph.inputs]
    taken = [node.target for node in graph.graph.nodes if node.op == "placeholder"]
    if names[0] != "logprobs" or len(set(names)) != len(names) or taken != names:
        raise _invalid("its inputs are logprobs and others, each a placeholder in their order")


def _check_node(node: LossNode, known: set[str]) -> None:
    allowed = {"call_function": FUNCTIONS, "call_method": METHODS}.get(node.op)
    if allowed is not None and node.target not in allowed:
        raise _invalid(f"{node.target[:60]!r} is not allowed")
    if len(node.args) > _ARGUMENTS or not set(node.kwargs) <= KEYWORDS:
        raise _invalid(f"the arguments of {node.target[:60]!r} are not allowed")
    for value in (*node.args, *node.kwargs.values()):
        for ref in _refs(value, _DEPTH, most=_METRICS if node.op == "output" else _ARGUMENTS):
            if ref not in known:
                raise _invalid("a node refers to one that is not before it")


def _refs(value: Any, depth: int, *, most: int) -> Iterator[str]:
    """Yields the nodes that an argument names; raises InvalidLossGraph if it is nested too deep."""
    if depth < 0:
        raise _invalid("an argument is nested too deep")
    if isinstance(value, dict) and "ref" in value:
        yield str(value["ref"])
        return
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if len(parts) > most:
        raise _invalid("an argument has too many parts")
    for part in parts:
        yield from _refs(part, depth - 1, most=most)


def _check_result(output: LossNode) -> None:
    returned = _unwrapped(output.args[0]) if len(output.args) == 1 else []
    metrics = returned[1].get("dict") if len(returned) == 2 and _is_dict(returned[1]) else None
    if not isinstance(metrics, dict):
        raise _invalid("it returns a loss and metrics")
    if not all(_is_dict(one) and set(one) == {"ref"} for one in (returned[0], *metrics.values())):
        raise _invalid("its loss and its metrics are nodes")
    if not all(_METRIC.fullmatch(name) for name in metrics):
        raise _invalid("metrics are named custom/NAME:sum or custom/NAME:mean")


def _is_dict(value: Any) -> bool:
    return isinstance(value, dict)


def _unwrapped(returned: Any) -> list[Any]:
    found = returned.get("tuple") if isinstance(returned, dict) else returned
    return found if isinstance(found, list) else []


def _invalid(message: str) -> InvalidLossGraph:
    return InvalidLossGraph(message)
