"""Writes services/windlass/modelfiles/architectures.json from the installed transformers."""

import json
from pathlib import Path

import transformers
from transformers.models.auto import modeling_auto

TARGET = Path(__file__).parents[1] / "services/windlass/modelfiles/architectures.json"


def content() -> str:
    """The whole file."""
    types = {
        "generation": modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        "scoring": modeling_auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
    }
    found = {"transformers": transformers.__version__}
    return json.dumps(found | {task: sorted(names) for task, names in types.items()}, indent=1)


if __name__ == "__main__":
    TARGET.write_text(content() + "\n")
