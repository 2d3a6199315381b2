"""Losses of tenants: graphs of torch.fx give what functions give; hostile ones are refused."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.fx
from torch.fx.node import _get_qualified_name

from windlass_agent.tuning.losses.graphs.evaluation import check_example, evaluate
from windlass_agent.tuning.losses.graphs.graph import read_graph
from windlass_agent.tuning.requests.operations import Example
from windlass_agent.tuning.requests.refusal import TuningRefused

LENGTH = 6
Loss = Callable[..., tuple[torch.Tensor, dict[str, torch.Tensor]]]


def encoded(value: Any) -> Any:
    """An argument of a traced node as clients write it."""
    if isinstance(value, torch.fx.Node):
        return {"ref": value.name}
    if isinstance(value, tuple):
        return {"tuple": [encoded(part) for part in value]}
    if isinstance(value, list):
        return [encoded(part) for part in value]
    if isinstance(value, dict):
        return {"dict": {name: encoded(part) for name, part in value.items()}}
    if isinstance(value, slice):
        return {"slice": [value.start, value.stop, value.step]}
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if value is Ellipsis:
        return {"ellipsis": True}
    if isinstance(value, float) and not np.isfinite(value):
        return {"float": str(value)}
    return value


def traced(loss: Loss, **ranks: int) -> dict[str, Any]:
    """The document of a loss as clients make it."""
    nodes = []
    for node in torch.fx.symbolic_trace(loss).graph.nodes:
        target = node.target
        if node.op == "call_function":
            target = _get_qualified_name(target).replace("_operator.", "operator.")
        nodes.append(
            {
                "op": node.op,
                "name": node.name,
                "target": str(target),
                "args": [encoded(one) for one in node.args],
                "kwargs": {name: encoded(one) for name, one in node.kwargs.items()},
            }
        )
    inputs = [{"name": "logprobs", "rank": 1}]
    inputs += [{"name": name, "rank": rank} for name, rank in ranks.items()]
    return {"inputs": inputs, "graph": {"format": 1, "nodes": nodes}}


def given(**inputs: Any) -> Example:
    tokens = np.arange(LENGTH)
    return Example(tokens=tokens, inputs={"target_tokens": tokens, **inputs})


ADVANTAGES = np.linspace(-1, 1, LENGTH, dtype=np.float32)
SAMPLED = np.linspace(-2, -1, LENGTH, dtype=np.float32)


def plain(logprobs: Any, advantages: Any) -> Any:
    return -(logprobs * advantages).sum(), {}


def clipped(logprobs: Any, advantages: Any, sampled: Any) -> Any:
    ratio = torch.exp(logprobs - sampled)
    held = torch.clamp(ratio, 0.8, max=1.2)
    loss = -torch.minimum(ratio * advantages, held * advantages).mean()
    kl = (sampled - logprobs).mean()
    return loss + 0.1 * kl**2, {
        "custom/kl:mean": kl,
        "custom/high:sum": (ratio > 1.2).float().sum(),
    }


def shaped(logprobs: Any, advantages: Any) -> Any:
    length = logprobs.shape[0]
    smooth = torch.nn.functional.softplus(logprobs[1:] - logprobs[:-1]).sum() / (length - 1)
    smooth = smooth - torch.nn.functional.logsigmoid(logprobs).mean()
    weights = torch.softmax(advantages, dim=0).detach()
    part = torch.where(advantages > 0, logprobs, torch.zeros_like(logprobs))
    worst = (part * weights).unsqueeze(-1).sum(dim=(0, 1)) + logprobs.max(dim=0)[0]
    return smooth - worst - logprobs[..., None].logsumexp(0).squeeze(), {}


CASES: list[tuple[Loss, dict[str, Any]]] = [
    (plain, {"advantages": ADVANTAGES}),
    (clipped, {"advantages": ADVANTAGES, "sampled": SAMPLED}),
    (shaped, {"advantages": ADVANTAGES}),
]


@pytest.mark.parametrize(("loss", "inputs"), CASES, ids=[case[0].__name__ for case in CASES])
def test_a_graph_gives_what_its_function_gives(loss: Loss, inputs: dict[str, Any]) -> None:
    graph = read_graph(json.dumps(traced(loss, **dict.fromkeys(inputs, 1))))
    check_example(graph, given(**inputs), set())
    tensors = {name: torch.from_numpy(values) for name, values in inputs.items()}
    own, theirs = (torch.linspace(-3, -0.5, LENGTH).requires_grad_() for _ in range(2))
    value, metrics = evaluate(graph, own, tensors)
    expected, reported = loss(theirs, *tensors.values())
    assert torch.equal(value, expected)
    assert metrics.keys() == reported.keys()
    assert all(torch.equal(metrics[name], reported[name]) for name in metrics)
    value.backward()
    expected.backward()
    assert torch.equal(own.grad, theirs.grad)
    assert own.grad.abs().sum() > 0


def call(target: str, *args: Any, op: str = "call_function", **kwargs: Any) -> dict[str, Any]:
    """A loss that is one call."""
    document = traced(plain, advantages=1)
    start = document["graph"]["nodes"][:2]
    middle = {"op": op, "name": "made", "target": target, "args": list(args), "kwargs": kwargs}
    summed = {"op": "call_method", "name": "loss", "target": "sum", "args": [{"ref": "made"}]}
    end = {"op": "output", "name": "output", "target": "output"}
    result = {"tuple": [{"ref": "loss"}, {"dict": {}}]}
    document["graph"]["nodes"] = [*start, middle, summed, {**end, "args": [result]}]
    return document


OWN = {"ref": "logprobs"}
HOSTILE: dict[str, dict[str, Any]] = {
    "an unknown function": call("os.system", "id"),
    "a function of torch that reads files": call("torch.load", "/etc/passwd"),
    "evaluation": call("builtins.eval", "1"),
    "an unknown method": call("__reduce__", OWN, op="call_method"),
    "a method that writes": call("copy_", OWN, OWN, op="call_method"),
    "an attribute": call("builtins.getattr", OWN, "__class__"),
    "a gradient": call("backward", OWN, op="call_method"),
    "a result that is written": call("torch.exp", OWN, out=OWN),
    "a module": call("model", OWN, op="call_module"),
    "a captured tensor": call("weight", op="get_attr"),
    "a later node": call("torch.exp", {"ref": "loss"}),
    "no tensor": call("torch.exp", "x"),
    "a list that is multiplied": call("operator.mul", [0], 10**9),
    "a power of numbers": call("operator.pow", 10, 10**9),
    "an unknown device": call("to", OWN, {"device": "cuda"}, op="call_method"),
    "an unknown type": call("to", OWN, {"dtype": "float64"}, op="call_method"),
    "parts by a tensor": call("operator.getitem", OWN, OWN),
    "a dimension that is not there": call("torch.sum", OWN, dim=7),
    "arguments nested deep": call("torch.exp", [[[[[[OWN]]]]]]),
    "many arguments": call("torch.exp", *[1] * 17),
    "a long list": call("torch.exp", [1] * 17),
}


@pytest.mark.parametrize("document", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_graph_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(TuningRefused) as refused:
        check_example(read_graph(json.dumps(document)), given(advantages=ADVANTAGES), set())
    assert refused.value.reason == "invalid_loss_graph"


def test_the_harness_of_hostile_graphs_takes_a_good_one() -> None:
    graph = read_graph(json.dumps(call("torch.exp", OWN)))
    check_example(graph, given(advantages=ADVANTAGES), set())
    value, _ = evaluate(graph, torch.zeros(LENGTH), {"advantages": torch.zeros(LENGTH)})
    assert float(value) == LENGTH


def changed(**changes: Any) -> dict[str, Any]:
    return {**traced(plain, advantages=1), **changes}


def returned(result: Any) -> dict[str, Any]:
    document = traced(plain, advantages=1)
    document["graph"]["nodes"][-1]["args"] = [result]
    return document


SUM = {"ref": "sum_1"}


@pytest.mark.parametrize(
    "document",
    [
        "",
        "[]",
        "{",
        "[" * 100_000,
        " " * 300_000,
        changed(inputs=[]),
        changed(inputs=[{"name": "advantages", "rank": 1}, {"name": "logprobs", "rank": 1}]),
        changed(inputs=[{"name": "logprobs", "rank": 3}, {"name": "advantages", "rank": 1}]),
        changed(graph={"format": 2, "nodes": []}),
        changed(graph={"format": 1, "nodes": traced(plain, advantages=1)["graph"]["nodes"] * 60}),
        returned(SUM),
        returned({"tuple": [SUM]}),
        returned({"tuple": [SUM, {"dict": {"loss:sum": SUM}}]}),
        returned({"tuple": [SUM, {"dict": {"custom/x:sum": 1.0}}]}),
        returned({"tuple": [1.0, {"dict": {}}]}),
        returned({"tuple": [SUM, {"dict": {f"custom/{n}:sum": SUM for n in range(40)}}]}),
    ],
)
def test_a_document_of_another_form_is_refused(document: Any) -> None:
    text = document if isinstance(document, str) else json.dumps(document)
    with pytest.raises(TuningRefused) as refused:
        read_graph(text)
    assert refused.value.reason == "invalid_loss_graph"


def wide(logprobs: Any, advantages: Any) -> Any:
    square = logprobs[:, None] * advantages[None, :]
    return (square[:, :, None] * advantages).sum(), {}


def vector(logprobs: Any, advantages: Any) -> Any:
    return logprobs * advantages, {}


def test_what_a_loss_makes_is_bounded_before_it_is_made() -> None:
    graph = read_graph(json.dumps(traced(wide, advantages=1)))
    check_example(graph, given(advantages=ADVANTAGES), set())
    tokens = np.zeros(1 << 13, np.int64)
    advantages = np.zeros(1 << 13, np.float32)
    large = Example(tokens=tokens, inputs={"target_tokens": tokens, "advantages": advantages})
    with pytest.raises(TuningRefused, match="numbers"):
        check_example(graph, large, set())


@pytest.mark.parametrize(
    ("reason", "loss", "inputs"),
    [
        ("missing_input", plain, {}),
        ("wrong_shape", plain, {"advantages": ADVANTAGES[:, None]}),
        ("wrong_shape", plain, {"advantages": ADVANTAGES[1:]}),
        ("wrong_dtype", plain, {"advantages": ADVANTAGES.astype(np.float64)}),
        ("invalid_loss_graph", vector, {"advantages": ADVANTAGES}),
    ],
)
def test_an_example_that_a_loss_does_not_fit_is_refused(
    reason: str, loss: Loss, inputs: dict[str, Any]
) -> None:
    graph = read_graph(json.dumps(traced(loss, advantages=1)))
    with pytest.raises(TuningRefused) as refused:
        check_example(graph, given(**inputs), set())
    assert refused.value.reason == reason
