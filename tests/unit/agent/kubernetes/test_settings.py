"""The settings as the documentation has them."""

import re
from pathlib import Path

import yaml
from pydantic import BaseModel

from windlass_agent.executors.kubernetes.engine_settings import EngineSettings
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
