"""Versions that an agent reports: complete weights on its disk, or brought to a cluster's claim."""

import os
from pathlib import Path

from windlass_agent.download import BroughtVersions, ModelCache


def test_complete_weights_are_reported_those_used_last_first(tmp_path: Path) -> None:
    models = ModelCache(tmp_path / "models")
    for used_at, name in enumerate(("mv-old", "mv-used", "mv-new", "mv-adapter", "mv-came.part")):
        folder = tmp_path / "models" / name
        folder.mkdir()
        os.utime(folder, (used_at, used_at))
    (tmp_path / "models/mv-adapter/adapter_config.json").touch()
    assert models.complete_models(9) == ["mv-new", "mv-used", "mv-old"]
    with models.using("mv-old"):
        assert models.complete_models(2) == ["mv-old", "mv-new"]


def test_those_of_a_claim_are_forgotten_once_there_are_too_many() -> None:
    brought = BroughtVersions(2)
    for name in ("mv-a", "mv-b", "mv-a", "mv-c"):
        brought.note(name)
    assert brought.latest() == ["mv-c", "mv-a"]
