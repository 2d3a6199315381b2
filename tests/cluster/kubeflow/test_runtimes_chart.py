"""The chart of runtimes without a cluster: off by default, checked in, and pinned."""

from typing import Any

import pytest
import yaml
from tests.cluster.objects.chart import HelmError, helm
from tests.cluster.objects.runtimes import (
    CHART,
    FRAMEWORK,
    FRAMEWORKS,
    MANIFESTS,
    MODELS,
    container,
    enabled,
    manifests,
    rendered,
)
from tests.cluster.provision import programs
from tests.cluster.provision.manifests import kustomize
from tests.support.environments.required import lacking

from windlass.backends.torchtune.recipes import MANAGED, model_of
from windlass.backends.torchtune.recipes import MODELS as TORCHTUNE_MODELS
from windlass.backends.trl.versions import VERSIONS


@pytest.fixture(autouse=True)
def built() -> None:
    if not programs.BY_NAME["helm"].folder().exists():
        lacking("helm is not built: `make cluster`")


def test_helm_finds_nothing_wrong() -> None:
    said = helm("lint", "--strict", str(CHART), values=enabled() | {"admission": {"enabled": True}})
    assert "0 chart(s) failed" in said


def test_nothing_is_installed_unasked() -> None:
    assert rendered() == []


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("key", MODELS)
def test_each_runtime_has_a_switch(framework: str, key: str) -> None:
    (made,) = rendered({framework: {key: {"enabled": True}}})
    assert made["metadata"]["name"] == f"{framework}-{MODELS[key]}"
    assert made["metadata"]["labels"][FRAMEWORK] == framework
    assert container(made)["resources"] == {"limits": {"nvidia.com/gpu": "1"}}


def test_resources_are_of_a_framework_or_of_one_model() -> None:
    wanted = {"limits": {"amd.com/gpu": 4}}
    own = {"llama3_2_3B": {"enabled": True, "resources": {"limits": {"cpu": "2"}}}}
    found = rendered({"trl": {"resources": wanted, "llama3_2_1B": {"enabled": True}} | own})
    small, large = (container(item)["resources"]["limits"] for item in found)
    assert small["amd.com/gpu"] == 4
    assert large == {"cpu": "2"}


@pytest.mark.parametrize(
    "values",
    [
        # Kubeflow Trainer reads the model from the name's three parts.
        {"torchtune": {"namePrefix": "with-dash"}},
        {"trl": {"image": {"digest": "sha256:short"}}},
        {"trl": {"llama3_2_70B": {"enabled": True}}},
        {"initializers": {"dataset": "/etc"}},
        {"runAsUser": 0},
        {"admission": {"failurePolicy": "Maybe"}},
        {"admission": {"agents": ["x'] || true"]}},
    ],
)
def test_values_that_cannot_work_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(HelmError):
        rendered(values)


def test_the_plain_manifests_are_the_charts() -> None:
    wanted = manifests()
    written = {path for path in MANIFESTS.rglob("*.yaml") if path.name != "values.yaml"}
    assert written == set(wanted)
    for path, content in wanted.items():
        assert yaml.safe_load(path.read_text()) == content, "run tools/render_manifests.py"


def test_kustomize_takes_them_all_or_those_of_one_framework() -> None:
    def names(folder: str) -> set[str]:
        found = yaml.safe_load_all(kustomize(MANIFESTS / folder))
        return {item["metadata"]["name"] for item in found}

    by_framework = [
        {f"{framework}-{model}" for model in MODELS.values()} for framework in FRAMEWORKS
    ]
    assert [names(framework) for framework in FRAMEWORKS] == by_framework
    assert names(".") == set.union(*by_framework)


def test_what_a_runtime_says_of_itself_is_known_to_us() -> None:
    for item in rendered(enabled()):
        marks = item["metadata"]["annotations"]
        command = container(item)["command"]
        if item["metadata"]["labels"][FRAMEWORK] == "trl":
            assert marks["windlass.dev/trl-version"] in VERSIONS
            assert command == ["torchrun", "-m", "trl.scripts.sft"]
        else:
            model = marks["windlass.dev/torchtune-model"]
            assert model in TORCHTUNE_MODELS
            # What Kubeflow Trainer itself makes of the name.
            assert model == model_of(item["metadata"]["name"])
            keys = {word.partition("=")[0] for word in command} & MANAGED
            merges = {"tokenizer.merges_file"} if model.startswith("qwen") else set()
            assert keys == MANAGED - {"tokenizer.merges_file"} | merges
