"""The recipes of TrainJobs, by their resources, in TorchTune's own registry; none is run."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.support.environments.torchtune_env import torchtune_python

from windlass.backends import LoraConfig, TorchTuneConfig
from windlass.backends.torchtune.recipes import MODELS, Recipe, choose_recipe, refusals

pytestmark = pytest.mark.torch
LORA, DORA = LoraConfig(), LoraConfig(use_dora=True)
QLORA = LoraConfig(quantize_base=True)
# What a recipe takes of its model, asked of the builder that the configuration names.
ASK = """
import inspect, json, pathlib
import torchtune
from omegaconf import OmegaConf
from torchtune._recipe_registry import get_all_recipes
from torchtune.config._utils import _get_component_from_path
configs = pathlib.Path(torchtune.__file__).parent.parent / "recipes" / "configs"
found = {}
for recipe in get_all_recipes():
    if recipe.name.partition("_finetune_")[0] not in ("full", "lora"):
        continue
    for config in recipe.configs:
        # Models of pictures need torchvision.
        if "_vision" in config.name:
            continue
        document = OmegaConf.load(configs / config.file_path)
        builder = _get_component_from_path(document.model._component_)
        taken = list(inspect.signature(builder).parameters)
        found.setdefault(recipe.name, {"distributed": recipe.supports_distributed, "configs": {}})
        found[recipe.name]["configs"][config.name] = [sorted(document), taken]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def registry() -> dict[str, Any]:
    python: Path = torchtune_python()
    done = subprocess.run([python, "-c", ASK], check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    ("nodes", "gpus", "peft", "model", "recipe", "suffix"),
    [
        (1, 1, None, "llama3_2/1B", "full_finetune_single_device", "_full_single_device"),
        (1, 1, LORA, "llama3_2/3B", "lora_finetune_single_device", "_lora_single_device"),
        (1, 1, DORA, "qwen2_5/1.5B", "lora_finetune_single_device", "_lora_single_device"),
        (1, 1, QLORA, "llama3_2/1B", "lora_finetune_single_device", "_qlora_single_device"),
        (1, 4, None, "llama3_2/1B", "full_finetune_distributed", "_full"),
        (1, 4, LORA, "llama3_2/3B", "lora_finetune_distributed", "_lora"),
        (1, 4, DORA, "qwen2_5/1.5B", "lora_finetune_distributed", "_lora"),
        (1, 8, QLORA, "llama3_3/70B", "lora_finetune_distributed", "_qlora"),
        (2, 8, None, "llama3_3/70B", "full_finetune_distributed", "_full_multinode"),
    ],
)
def test_a_train_job_gets_the_recipe_of_its_resources(
    registry: dict[str, Any],
    nodes: int,
    gpus: int,
    peft: LoraConfig | None,
    model: str,
    recipe: str,
    suffix: str,
) -> None:
    config = TorchTuneConfig(
        num_nodes=nodes, peft_config=peft, resources_per_node={"gpu": gpus}, epochs=1
    )
    config.validate()
    args = config.to_args()
    assert not list(refusals(model, args, config.placement))
    found = choose_recipe(model, args, config.placement)
    assert found == Recipe(recipe, f"{model}{suffix}")
    known = registry[recipe]
    assert known["distributed"] is (nodes * gpus > 1) is config.placement.needs_rendezvous
    keys, taken = known["configs"][found.config]
    for key in (arg.partition("=")[0] for arg in args):
        section, _, field = key.partition(".")
        assert section in keys
        assert not field or field in taken


def test_whatever_is_not_refused_is_there(registry: dict[str, Any]) -> None:
    checked, missing = 0, set()
    for model in MODELS:
        for peft in (None, LORA, DORA, QLORA):
            for nodes, gpus in ((1, 1), (1, 8), (2, 8)):
                config = TorchTuneConfig(
                    num_nodes=nodes, peft_config=peft, resources_per_node={"gpu": gpus}
                )
                args = config.to_args()
                if list(refusals(model, args, config.placement)):
                    continue
                found = choose_recipe(model, args, config.placement)
                checked += 1
                if found.config not in registry[found.name]["configs"]:
                    missing.add(found.config)
    assert checked > 20
    # Kubeflow Trainer lets them pass, and so do we: 70 billion weights on one device.
    kinds = ("full", "lora", "qlora")
    assert missing == {f"llama3_3/70B_{kind}_single_device" for kind in kinds}
