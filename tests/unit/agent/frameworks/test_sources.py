"""Allowed sources of a TrainJob's data and model, by initializer."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from windlass_agent.frameworks import TrainingRuntime, sources

IMAGES = {kind: f"ghcr.io/x/{kind}-initializer:v2.3.0" for kind in ("dataset", "model")}
RUNTIME = TrainingRuntime(name="r", initializers=IMAGES)


def said(runtime: TrainingRuntime = RUNTIME, /, **uris: object) -> dict[str, str]:
    initializer = {kind: {"storageUri": uri} for kind, uri in uris.items()}
    return {one.field: one.message for one in sources.refusals(initializer, runtime)}


@pytest.mark.parametrize(
    ("kind", "uri"),
    [
        ("dataset", "hf://tatsu-lab/alpaca"),
        ("dataset", "hf://tatsu-lab/alpaca/data/train.parquet"),
        ("dataset", "s3://bucket"),
        ("dataset", "s3://my.bucket/a folder/of it"),
        ("dataset", "cache://schema/table"),
        ("model", "hf://Qwen/Qwen2.5-1.5B-Instruct"),
        ("model", "hf://gpt2"),
        ("model", "s3://bucket/models/small"),
    ],
)
def test_what_kubeflow_fetches_is_taken(kind: str, uri: str) -> None:
    assert said(**{kind: uri}) == {}


@pytest.mark.parametrize(
    ("kind", "uri", "words"),
    [
        ("dataset", "gs://bucket/x", "does not begin with hf:// or s3:// or cache://"),
        ("dataset", "/etc/passwd", "does not begin with"),
        ("dataset", "", "does not begin with"),
        ("dataset", "hf://alpaca", "hf://USER/REPOSITORY, or a path in it"),
        ("dataset", "s3:///folder", "s3://BUCKET/PREFIX"),
        ("model", "cache://schema/table", "does not begin with hf:// or s3://"),
        ("model", "hf://acme/small/model.safetensors", "hf://USER/REPOSITORY"),
        ("model", "hf://acme/", "hf://USER/REPOSITORY"),
        ("model", "hf://../..", "hf://USER/REPOSITORY"),
        ("model", "hf://user:password@host/x", "hf://USER/REPOSITORY"),  # pragma: allowlist secret
    ],
)
def test_what_it_does_not_is_refused(kind: str, uri: str, words: str) -> None:
    ((field, message),) = said(**{kind: uri}).items()
    assert field == f"spec.initializer.{kind}.storageUri"
    assert repr(uri) in message
    assert words in message


@pytest.mark.parametrize("image", ["", "acme/our-own:1", "acme/dataset-initializer-of-ours:1"])
def test_what_somebody_elses_reads_is_his_affair(image: str) -> None:
    assert said(TrainingRuntime(name="r", initializers={"dataset": image}), dataset="gs://x") == {}


@pytest.mark.parametrize("image", ["m:5000/x/dataset-initializer@sha256:ab", "dataset-initializer"])
def test_a_mirrors_is_kubeflows(image: str) -> None:
    assert said(TrainingRuntime(name="r", initializers={"dataset": image}), dataset="gs://x")


@given(some.text() | some.none() | some.integers() | some.dictionaries(some.text(), some.text()))
def test_whatever_is_written_is_taken_or_named(uri: object) -> None:
    for field, message in said(dataset=uri, model=uri).items():
        assert field.endswith(".storageUri")
        assert repr(uri) in message
    assert list(sources.refusals({"dataset": uri}, RUNTIME)) == []
