"""Whether a model reads images, by its files, and whether its engine says so."""

import json
from pathlib import Path
from typing import Any

import pytest

from windlass.engine_arguments import EngineArguments
from windlass.modelfiles import unknown_type
from windlass.modelfiles.vision import reads_images
from windlass_agent.engines.registry import engines
from windlass_agent.engines.vllm_engine import VllmEngine

VLLM = VllmEngine(Path("python")).capabilities


@pytest.mark.parametrize(
    ("config", "reads"),
    [
        ({"model_type": "llava", "vision_config": {"model_type": "clip_vision_model"}}, True),
        ({"model_type": "llama"}, False),
        # Of a model that was made of one with eyes.
        ({"model_type": "gemma3_text", "vision_config": None}, False),
        ({"vision_config": {}}, False),
        ({"vision_config": "clip"}, False),
        ({"text_config": {"vision_config": {"x": 1}}}, False),
        ([], False),
    ],
)
def test_a_model_reads_images_if_its_config_has_a_part_for_them(
    tmp_path: Path, config: Any, reads: bool
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert reads_images(tmp_path) is reads


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 100_000, b" " * (33 * 2**20)])
def test_what_cannot_be_read_reads_none(tmp_path: Path, content: bytes) -> None:
    assert not reads_images(tmp_path)
    (tmp_path / "config.json").write_bytes(content)
    assert not reads_images(tmp_path)


@pytest.mark.parametrize("nodes", [1, 2])
def test_an_engine_sees_if_its_kind_can_and_its_model_does(nodes: int) -> None:
    plain = EngineArguments()
    assert VLLM.chosen(plain, nodes, vision=True).vision
    assert not VLLM.chosen(plain, nodes).vision
    for task in ("embed", "score"):
        assert not VLLM.chosen(EngineArguments(task=task), vision=True).vision
    for kind in engines().values():
        assert kind.name == "vllm" or not kind.capabilities.chosen(plain, vision=True).vision


def test_no_trainer_takes_a_model_that_it_cannot_load() -> None:
    """Whoever creates a job on one is refused by this warning."""
    assert unknown_type("idefics3").startswith("Models of type 'idefics3' are known neither")
