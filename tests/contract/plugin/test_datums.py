"""Datums go from the gateway to an engine's plugin, and both ends know the same ones."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from windlass.core.errors import InvalidArgument
from windlass.gateway.admin.engines.training_bodies import TrainEngine
from windlass.inference.trainings.training import body_of, checked
from windlass.tuning_api.losses.specs import SPECS
from windlass_vllm.api.requests import Bounds, TrainRequest, read_request
from windlass_vllm.refusal import Refused

BOUNDS = Bounds(vocabulary=100, context=8)
CHUNKS = {"chunks": [{"type": "encoded_text", "tokens": [1]}, {"tokens": [2, 3]}]}


def body(loss: str, /, **words: Any) -> dict[str, Any]:
    """A training of one datum with every input of its loss."""
    spec = SPECS[loss]
    numbers = {"dtype": "float32", "data": [0.0, 0.1, 1]}
    inputs: dict[str, Any] = dict.fromkeys((*spec.needs, *spec.takes), numbers)
    inputs["target_tokens"] = {"dtype": "int64", "data": [2, 3, 4], "shape": [3]}
    datum = {"model_input": CHUNKS, "loss_fn_inputs": inputs}
    return {"datums": [datum], "loss": loss, "loss_config": dict(spec.settings)} | words


def tensor(loss: str, name: str, /, **words: Any) -> dict[str, Any]:
    """The same with one tensor that differs."""
    found = body(loss)
    inputs = found["datums"][0]["loss_fn_inputs"]
    inputs[name] = inputs.get(name, {"dtype": "float32", "data": [1, 1, 1]}) | words
    return found


def by_the_gateway(given: dict[str, Any]) -> TrainRequest:
    message = TrainEngine.model_validate_json(json.dumps(given)).to_message("my-model")
    _, tokens = checked(message, "hogwild")
    assert tokens == 3
    return read_request(body_of(message, "train-1", "hogwild"), BOUNDS)


@pytest.mark.parametrize("loss", SPECS)
def test_what_arrives_is_what_was_sent(loss: str) -> None:
    found = by_the_gateway(body(loss))
    straight = read_request(json.dumps(body(loss)).encode(), BOUNDS)
    (one,), (other,) = found.datums, straight.datums
    assert (found.loss, found.loss_config) == (straight.loss, straight.loss_config)
    assert one.tokens == other.tokens
    assert {name: given.data for name, given in one.loss_fn_inputs.items()} == {
        name: given.data for name, given in other.loss_fn_inputs.items()
    }


def test_several_targets_keep_their_shape() -> None:
    given = body("cross_entropy")
    for one in given["datums"][0]["loss_fn_inputs"].values():
        one |= {"data": [1, 2, 3, 4, 5, 6], "shape": [3, 2]}
    (datum,) = by_the_gateway(given).datums
    assert {one.shape for one in datum.loss_fn_inputs.values()} == {(3, 2)}


WRONG: dict[str, dict[str, Any]] = {
    "both forms": body("ppo", samples=[{"context_ids": [1], "continuation_ids": [2]}]),
    "no loss": body("ppo", loss=""),
    "a custom loss": body("ppo", loss="custom"),
    "an unknown loss": body("ppo", loss="__class__"),
    "a setting of another loss": body("ppo", loss_config={"beta": 1}),
    "a setting below zero": body("dro", loss_config={"beta": -1}),
    "crossed clips": body("gspo", loss_config={"clip_low_threshold": 3}),
    "a missing input": body("ppo", loss="cross_entropy"),
    "a strange input": tensor("ppo", "weights"),
    "an input too short": tensor("ppo", "mask", data=[1]),
    "an input of another shape": tensor("ppo", "mask", shape=[3, 1]),
    "ids for numbers": tensor("ppo", "mask", dtype="int64"),
    "numbers for ids": tensor("ppo", "target_tokens", dtype="float32"),
    "a number of 64 bits": tensor("ppo", "mask", data=[1, 1, 1e39]),
    "an infinite number": tensor("ppo", "mask", data=[1, 1, float("inf")]),
    "no number": tensor("ppo", "mask", data=[1, 1, float("nan")]),
    "targets of a policy in rows": tensor("ppo", "target_tokens", shape=[3, 1]),
    "a target below zero": tensor("ppo", "target_tokens", data=[1, 1, -1]),
    "targets too few": tensor("ppo", "target_tokens", data=[1, 1], shape=[2]),
    "targets that lack": tensor("ppo", "target_tokens", data=[1, 1]),
    "an unknown type": tensor("ppo", "mask", dtype="bfloat16"),
    "an image": body("ppo", datums=[{"model_input": {"chunks": [{"type": "image"}]}}]),
    "an unknown field": body("ppo", loss_fn="ppo"),
}


@pytest.mark.parametrize("given", WRONG.values(), ids=WRONG.keys())
def test_both_refuse_the_same(given: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        read_request(json.dumps(given).encode(), BOUNDS)
    with pytest.raises((InvalidArgument, ValidationError)):
        by_the_gateway(given)
