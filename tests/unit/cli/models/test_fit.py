"""`windlass models fit` on a folder, which no server needs to know."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.support.processes import warm

from windlass.modelfiles.footprint import footprint

GIB = 2**30
CONFIG = {
    "model_type": "llama", "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "hidden_size": 4096, "intermediate_size": 14336,
    "max_position_embeddings": 8192,
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    with (tmp_path / "model.safetensors").open("wb") as file:
        # A hole: nothing of it is read.
        file.truncate(15 * GIB)
    return tmp_path


def run(folder: Path, *arguments: str) -> Any:
    words = ("models", "fit", str(folder), *arguments)
    environment = {**os.environ, "HOME": str(folder)}
    return warm.command(*words, given="", environment=environment, folder=folder, timeout=120)


def test_it_says_on_how_many_gpus_a_model_fits_and_why_not_on_fewer(folder: Path) -> None:
    done = run(folder, "--gpu-memory", "16Gi", "--gpus", "4", "-o", "json")
    one, two, four = json.loads(done.stdout)
    assert (one["gpus"], one["fits"]) == (1, False)
    assert "weights take 15.0 GiB" in one["reason"]
    assert (two["fits"], two["context_length"]) == (True, 8192)
    assert four["requests"] > two["requests"] > 1
    assert two["weight_bytes"] == footprint(CONFIG, 15 * GIB).weight_bytes // 2
    shown = run(folder, "--gpu-memory", "16Gi", "--gpus", "4").stdout.splitlines()
    assert shown[0].split() == [
        "GPUS", "WEIGHTS", "GIB", "ADAPTERS", "GIB", "CACHE", "GIB", "CONTEXT", "REQUESTS",
        "REASON",
    ]  # fmt: skip
    assert shown[2].split()[:2] == ["2", "7.5"]
    nodes = run(folder, "--gpu-memory", "16Gi", "--gpus", "1", "--nodes", "2").stdout.splitlines()
    # Without adapters, which engines on several nodes do not load.
    assert nodes[1].split()[:3] == ["2x1", "7.5", "0.0"]


def test_a_draft_has_a_column_of_its_own(folder: Path) -> None:
    small = folder / "small"
    small.mkdir()
    (small / "config.json").write_text(json.dumps(CONFIG | {"num_hidden_layers": 2}))
    with (small / "model.safetensors").open("wb") as file:
        file.truncate(GIB)
    done = run(folder, "--gpu-memory", "24Gi", "--gpus", "1", "--set", f"draft_model={small}")
    heads, shown = done.stdout.splitlines()[:2]
    assert "DRAFT GIB" in heads
    assert shown.split()[:3] == ["1", "15.0", "1.0"]


def test_what_fits_nowhere_is_a_failure(folder: Path) -> None:
    done = run(folder, "--gpu-memory", "4Gi", "--gpus", "2")
    assert (done.returncode, done.stderr) == (1, "windlass: The model fits on none of them.\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--set", "context_length=1"], "context_length: Input should be greater than"),
        (["--set", "no_such=1"], "no_such"),
        (["--set", "draft_tokens=3"], "draft_tokens is for engines with a draft_model"),
        (["--gpu-memory", "much"], "'much' is not a size"),
    ],
)
def test_what_is_no_argument_is_named(folder: Path, arguments: list[str], said: str) -> None:
    done = run(folder, "--gpu-memory", "16Gi", *arguments)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("content", [b"[]", b"{", b"{}", b"\xff", None])
def test_a_folder_that_does_not_say_its_shape_is_told(folder: Path, content: bytes | None) -> None:
    if content is None:
        (folder / "config.json").unlink()
    else:
        (folder / "config.json").write_bytes(content)
    done = run(folder, "--gpu-memory", "16Gi")
    assert (done.returncode, "cannot be estimated" in done.stderr) == (2, True), done.stderr
    (folder / "model.safetensors").unlink()
    assert "has no weights in safetensors" in run(folder, "--gpu-memory", "16Gi").stderr
