"""What recipes of families say is true of the models that Transformers builds."""

import re

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from windlass.cli.jobs.creation.document import JobDocument
from windlass.cli.jobs.creation.recipes import FOLDER, recipe
from windlass.modelfiles.chat_templates import NAMED
from windlass.modelfiles.presets import PresetTable, shipped

FAMILIES = {
    "llama": ["llama"],
    "qwen": ["qwen2", "qwen3"],
    "gemma": ["gemma", "gemma2", "gemma3_text"],
    "mistral": ["mistral", "ministral3"],
    "phi": ["phi3"],
    "deepseek-coder": ["llama"],
}
CASES = [(family, kind) for family, kinds in FAMILIES.items() for kind in kinds]


def text_of(family: str) -> str:
    return (FOLDER / f"sft-{family}.yaml").read_text()


@pytest.mark.parametrize(("family", "kind"), CASES)
def test_an_adapter_is_on_every_layer_of_the_type(family: str, kind: str) -> None:
    config = AutoConfig.for_model(kind)
    config.num_hidden_layers = 1
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:1]
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    layers = {
        name.rpartition(".")[2]
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear)
    }
    targets = JobDocument(recipe(f"sft-{family}")).get("windlass.config.target_modules")
    assert set(targets) == layers - {"lm_head"}
    table = PresetTable(shipped())
    preset = table.choose(kind, "generation", ())
    assert set(table[preset].lora_targets) == set(targets)
    assert kind in text_of(family), "the recipe names the type"
    if family == "gemma":
        assert config.vocab_size >= 256_000


@pytest.mark.parametrize("family", FAMILIES)
def test_templates_that_a_recipe_names_are_there(family: str) -> None:
    about = " ".join(re.findall(r"(?m)^# (.*)$", text_of(family)))
    for sentence in about.split(". "):
        if "--chat-template" in sentence:
            assert set(NAMED) & set(re.findall(r"\w+", sentence)), sentence
