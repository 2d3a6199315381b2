"""The body that creates a job: whatever comes is typed, or refused by the path of its field."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.errors import InvalidArgument
from windlass.gateway.openapi import inference
from windlass.gateway.openapi.jobs import components
from windlass.jobs.creation.spec_builder import drafted
from windlass.jobs_api.extension import Extension
from windlass.jobs_api.request import CreateJob, decode

BARE: dict[str, Any] = {"model": "tiny", "training_file": "file-1"}
GRADER = {
    "type": "string_check",
    "name": "exact",
    "operation": "eq",
    "input": "{{sample.output_text}}",
    "reference": "{{item.answer}}",
}


def body(**fields: Any) -> bytes:
    return json.dumps({**BARE, **fields}).encode()


def refusal(data: bytes) -> InvalidArgument | None:
    try:
        decode(data)
    except InvalidArgument as error:
        return error
    return None


@given(st.binary(max_size=60))
def test_any_bytes_are_a_job_or_refused(data: bytes) -> None:
    refusal(data)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@given(st.sampled_from([*CreateJob.__struct_fields__, "more"]), values)
def test_any_value_of_a_field_fits_or_is_named(name: str, value: Any) -> None:
    error = refusal(body(**{name: value}))
    if error is not None and error.param is None:
        assert error.reason == "invalid_json"
    elif error is not None:
        assert str(error.param).startswith(name)


@given(st.sampled_from(Extension.__struct_fields__), values)
def test_any_value_of_an_extension_fits_or_is_named(name: str, value: Any) -> None:
    error = refusal(body(windlass={name: value}))
    assert error is None or str(error.param or "windlass").startswith("windlass")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"windlass": {"resources": {"disks": 1}}}, "windlass.resources.disks"),
        ({"windlass": {"export": ["merged", "merged"]}}, "windlass.export"),
        ({"windlass": {"schema_version": 2}}, "windlass.document"),
        ({"windlass": {"document": {"seed": 1}, "config": {}}}, "windlass.document"),
        ({"windlass": {"document": {"seed": 1}}, "method": {"type": "dpo"}}, "method"),
        ({"windlass": {"method": "ppo"}}, "windlass.method"),
        ({"hyperparameters": {"n_epochs": 51}}, "hyperparameters.n_epochs"),
        ({"integrations": [{"type": "tensorboard"}] * 2}, "integrations.1.type"),
        ({"integrations": [{"type": "tensorboard"}] * 6}, "integrations"),
        ({"method": {"type": "reinforcement", "reinforcement": {}}},
         "method.reinforcement.grader"),
    ],
)  # fmt: skip
def test_a_field_at_fault_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        decode(body(**fields))
    assert refused.value.param == param


def test_every_field_is_in_the_schema() -> None:
    found = components()
    assert not found.keys() & inference.components().keys()
    assert set(found["CreateJob"]["properties"]) == set(CreateJob.__struct_fields__)
    assert set(found["Extension"]["properties"]) == set(Extension.__struct_fields__)
    settings = [one.get("$ref", "") for one in found["Extension"]["properties"]["config"]["anyOf"]]
    for name in ("TRLSettings", "TorchTuneSettings"):
        assert f"#/components/schemas/{name}" in settings
        assert "rank" in found[name]["properties"]


def test_what_was_asked_for_is_kept() -> None:
    asked = decode(
        body(
            method={"type": "reinforcement", "reinforcement": {
                "grader": GRADER, "hyperparameters": {"n_epochs": 2, "eval_samples": "auto"},
            }},
            integrations=[{"type": "wandb", "wandb": {"project": "p", "tags": ["a"]}}],
            windlass={"method": "rloo", "resources": {"nodes": 2, "cpus": 3}, "runtime": "trl",
                      "checkpoints": {"keep_last": 2}},
        )
    )  # fmt: skip
    draft = drafted(asked, default_backend="other", runs_python=False)
    spec = draft.spec
    assert (spec.method, spec.backend, spec.grader) == ("rloo", "trl", GRADER)
    assert spec.hyperparameters == {"n_epochs": 2}
    assert spec.extra == {"num_nodes": 2}
    assert (spec.resources.cpus, spec.resources.gpus) == (3, 0)
    assert spec.keep is not None
    assert (spec.keep.last, spec.keep.best) == (2, 1)
    assert spec.integrations == [{"type": "wandb", "wandb": {"project": "p", "tags": ["a"]}}]


@pytest.mark.parametrize(
    ("windlass", "gpus"),
    [({}, 2), ({"windlass": {}}, 2), ({"windlass": {"resources": {}}}, 0),
     ({"windlass": {"resources": {"gpus": 4}}}, 4)],
)  # fmt: skip
def test_who_says_nothing_of_resources_gets_the_installations_gpus(
    windlass: dict[str, Any], gpus: int
) -> None:
    draft = drafted(
        decode(body(**windlass)), default_backend="trl", default_gpus=2, runs_python=False
    )
    assert draft.spec.resources.gpus == gpus


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"more": 1}, "Unknown parameter: 'more'."),
        ({"method": {}}, "Missing required parameter: 'method.type'."),
        ({"seed": 1.5}, "Invalid value for 'seed': expected an integer or null, got a number."),
        ({"seed": -1}, "Invalid value for 'seed': expected an integer of at least 0."),
        ({"integrations": [{"type": "comet"}]},
         "Invalid value for 'integrations.0.type': 'comet' is not one of wandb, mlflow, "
         "tensorboard."),
        ({"windlass": {"runtime": "A"}},
         "Invalid value for 'windlass.runtime': is not a valid name."),
    ],
)  # fmt: skip
def test_a_refusal_is_a_sentence(fields: dict[str, Any], message: str) -> None:
    error = refusal(body(**fields))
    assert error is not None
    assert error.message == message


@pytest.mark.parametrize(
    "rest",
    [b"garbage", b'"seed":' + b"9" * 5000 + b"}", b'"windlass":' + b"[" * 50_000, b'"x":"\xff"}'],
)
def test_a_body_that_is_no_json_after_its_metadata_is_refused(rest: bytes) -> None:
    """msgspec stops at the metadata, and does not come to the rest."""
    refused = refusal(body(metadata={"a": 5})[:-1] + b"," + rest)
    assert refused is not None
    assert refused.reason == "invalid_json"
