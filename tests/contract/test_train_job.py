"""Every TrainJob that we make, against the CRD of the pinned Kubeflow Trainer."""

import re
from typing import Any

import pytest
from tests.support.factories import trainer_crd

from windlass.backends import (
    BuiltinTrainer,
    HuggingFaceDatasetInitializer,
    HuggingFaceModelInitializer,
    Initializer,
    LLMBackend,
    LoraConfig,
    S3DatasetInitializer,
    S3ModelInitializer,
    TorchTuneConfig,
    TRLConfig,
    TRLGRPOConfig,
    TRLPeftConfig,
    TRLTrainerType,
)

SPEC = trainer_crd.excerpt()
_TYPES = {"string": str, "integer": int, "boolean": bool, "array": list, "object": dict}
NODES: dict[str, Any] = {"num_nodes": 2, "resources_per_node": {"gpu": 1, "memory": "64Gi"}}
CONFIGS: tuple[LLMBackend, ...] = (
    TRLConfig(),
    TRLConfig(
        trainer_type=TRLTrainerType.GRPO,
        peft_config=TRLPeftConfig(target_modules=[f"layer.{n}" for n in range(32)]),
        grpo_config=TRLGRPOConfig(
            reward_funcs=[f"acme.rewards.number_{n}" for n in range(16)],
            reward_model_name_or_path="/workspace/judge",
        ),
        max_steps=7,
        fp16=True,
        **NODES,
    ),
    TorchTuneConfig(),
    TorchTuneConfig(epochs=1, peft_config=LoraConfig()),
    TorchTuneConfig(epochs=1, **NODES),
)
INITIALIZERS = (
    None,
    Initializer(),
    Initializer(
        dataset=HuggingFaceDatasetInitializer("u/r/data", ["*.md"], "token"),
        model=HuggingFaceModelInitializer("hf://u/r", secret="s"),
    ),
    Initializer(
        dataset=S3DatasetInitializer("s3://b/d", region="eu"), model=S3ModelInitializer("s3://b/m")
    ),
)


def check(value: Any, schema: dict[str, Any], path: str) -> None:
    """Asserts what an API server checks of a value: fields, types and bounds."""
    if schema.get("x-kubernetes-int-or-string"):
        assert isinstance(value, int | str), path
        assert re.search(schema.get("pattern", ""), str(value)), path
        return
    assert isinstance(value, _TYPES[schema["type"]]), path
    if isinstance(value, dict):
        known = schema.get("properties", {})
        assert set(schema.get("required", ())) <= set(value), path
        for name, part in value.items():
            each = schema.get("additionalProperties") or known.get(name)
            assert each is not None, f"Trainer has no {path}.{name}"
            check(part, each, f"{path}.{name}")
    elif isinstance(value, list):
        assert len(value) <= schema.get("maxItems", len(value)), path
        for item in value:
            check(item, schema["items"], f"{path}[]")
    elif isinstance(value, str):
        assert len(value) <= schema.get("maxLength", len(value)), path


@pytest.mark.cluster
def test_the_excerpt_is_that_of_the_pinned_trainer() -> None:
    """`python -m tests.support.factories.trainer_crd` writes it anew."""
    schema = trainer_crd.pinned()
    if schema is None:
        pytest.skip(f"{trainer_crd.MODULE} is not in Go's module cache: `make cluster`")
    assert schema == SPEC


@pytest.mark.parametrize("initializer", INITIALIZERS)
@pytest.mark.parametrize("config", CONFIGS)
def test_the_object_is_one_that_trainer_takes(
    config: LLMBackend, initializer: Initializer | None
) -> None:
    job = BuiltinTrainer(config).to_train_job(
        "j", runtime="r", initializer=initializer, image="i", env={"A": "1"}
    )
    check(job["spec"], SPEC, "spec")
    assert job["apiVersion"] == f"trainer.kubeflow.org/{trainer_crd.VERSION}"


@pytest.mark.parametrize(
    "wrong",
    [
        {"trainer": {}},
        {"runtimeRef": {"name": "r"}, "trainer": {"numNodes": "2"}},
        {"runtimeRef": {"name": "r"}, "trainer": {"nodes": 2}},
        {"runtimeRef": {"name": "r"}, "trainer": {"args": ["a"] * 129}},
    ],
)
def test_the_check_finds_what_trainer_refuses(wrong: dict[str, Any]) -> None:
    with pytest.raises(AssertionError):
        check(wrong, SPEC, "spec")
