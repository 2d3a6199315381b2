"""Reads whether a model takes images, by its config.json and never by its name."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from windlass.modelfiles.documents import max_bytes

_CONFIG = "config.json"


def has_vision(config: Mapping[str, Any]) -> bool:
    """Returns True if a config.json has a part for images, as Transformers writes it."""
    part = config.get("vision_config")
    return isinstance(part, Mapping) and bool(part)


def reads_images(folder: Path) -> bool:
    """Returns True if the model of a folder takes images; False for what cannot be read."""
    path = folder / _CONFIG
    try:
        if path.stat().st_size > max_bytes(_CONFIG):
            return False
        config = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(config, dict) and has_vision(config)
