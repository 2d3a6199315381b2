"""The types of models that are said to be known."""

import json

from tools import generate_architectures
from transformers.models.auto import modeling_auto

from windlass.modelfiles import known_types


def test_they_are_those_of_the_installed_transformers() -> None:
    """Otherwise run tools/generate_architectures.py."""
    written = json.loads(generate_architectures.TARGET.read_text())
    assert written == json.loads(generate_architectures.content())


def test_they_are_what_the_engine_loads() -> None:
    known = known_types()
    assert set(known.generation) == set(modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    assert {"llama", "qwen3", "gemma3_text", "mistral"} <= set(known.generation)
    assert "deberta-v2" in known.scoring
