"""The settings as the documentation has them."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel, ValidationError
from tests.support.processes import pages

from windlass.kubernetes import labels
from windlass_agent.executors.kubernetes.engine_settings import EngineSettings, PickerSettings
from windlass_agent.executors.kubernetes.render.engine_pod import HEALTH_PORT
from windlass_agent.executors.kubernetes.settings import Accelerator, ClusterSettings

PAGE = Path(__file__).parents[4] / "docs/reference/cluster-settings.md"


def _example() -> str:
    (found,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return str(found)


def test_the_documented_example_is_valid_and_names_every_field() -> None:
    example = yaml.safe_load(_example())
    settings = ClusterSettings.model_validate(example)
    # The agent itself fills in its certificate.
    assert set(ClusterSettings.model_fields) - set(example) == {"agent_ca"}
    named = {field for one in example["accelerators"] for field in one}
    assert named == set(Accelerator.model_fields)
    assert set(example["engines"]) == set(EngineSettings.model_fields)
    assert set(example["engines"]["pickers"][0]) == set(PickerSettings.model_fields)
    for section in ("sizes", "deadlines", "patience"):
        model: BaseModel = getattr(settings, section)
        assert set(example[section]) == set(type(model).model_fields)
        assert model == getattr(ClusterSettings(), section)


def test_it_is_read_from_a_file(tmp_path: Path) -> None:
    path, overlay = tmp_path / "cluster.yaml", tmp_path / "overlay.yaml"
    path.write_text(_example())
    overlay.write_text("spec: {priorityClassName: low}")
    settings = ClusterSettings.load(path, overlay=overlay)
    assert settings.accelerators[1].counted_as == "amd.com/gpu"
    assert settings.accelerators[2].counted_as == "h100"
    assert settings.overlay == {"spec": {"priorityClassName": "low"}}
    path.write_text("")
    assert ClusterSettings.load(path) == ClusterSettings()


PICKER = {"namespace": "team-a", "model": "m", "address": "epp.team-a.svc:9002"}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"address": "epp.team-a.svc"}, "address"),
        ({"address": "https://epp:1"}, "address"),
        ({"address": "unix:/x:1"}, "address"),
        ({"namespace": "Team A"}, "namespace"),
        ({"model": ""}, "model"),
        ({"ca": "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----"}, "ca"),
        ({"timeout_ms": 0}, "timeout_ms"),
        ({"pods": {"a b": "c"}}, "pods"),
        ({"pods": {"app": "no label!"}}, "pods"),
        ({"unknown": 1}, "unknown"),
    ],
)
def test_a_picker_that_cannot_be_is_refused(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError) as refused:
        EngineSettings.model_validate({"pickers": [PICKER | changes]})
    assert refused.value.errors()[0]["loc"][:3] == ("pickers", 0, field)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"device_class": "", "resource": "nvidia.com/gpu"}, "only claimed devices"),
        ({"capacity": {"memory": "0"}}, "nothing of a device"),
        ({"capacity": {"memory": "-1Gi"}}, "nothing of a device"),
        ({"capacity": {"memory": "much"}}, "is not a quantity"),
        ({"capacity": {"a b": "1"}}, "Resource"),
    ],
)
def test_a_part_that_cannot_be_is_refused(changes: dict[str, Any], reason: str) -> None:
    part = {"device_class": "gpu.example.com", "capacity": {"memory": "16Gi"}}
    assert Accelerator.model_validate(part).capacity == {"memory": "16Gi"}
    with pytest.raises(ValidationError, match=reason):
        Accelerator.model_validate(part | changes)


def test_a_model_has_one_picker_in_a_namespace() -> None:
    settings = EngineSettings.model_validate({"pickers": [PICKER, PICKER | {"namespace": "b"}]})
    assert settings.picker_of("b", "m") == settings.pickers[1]
    assert settings.picker_of("c", "m") is settings.picker_of("b", "n") is None
    with pytest.raises(ValidationError, match="m in team-a has more than one"):
        EngineSettings.model_validate({"pickers": [PICKER, PICKER | {"timeout_ms": 5}]})


def test_the_page_on_pickers_names_the_pool_that_it_makes() -> None:
    printed = [
        yaml.safe_load(one) for one in pages.blocks("how-to/use-an-endpoint-picker.md", "yaml")
    ]
    (pool,) = (one for one in printed if "kind" in one)
    (settings,) = (one["engines"] for one in printed if "engines" in one)
    (picker,) = EngineSettings.model_validate(settings).pickers
    assert picker.namespace == pool["metadata"]["namespace"]
    assert pool["spec"]["selector"]["matchLabels"] == {labels.MODEL: picker.model}
    assert pool["spec"]["targetPorts"] == [{"number": HEALTH_PORT}]
