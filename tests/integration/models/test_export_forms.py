"""Merged weights and GGUF say what the adapter on its base says."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from peft import PeftModel
from tests.support.factories.toy_model import make_adapter, make_model, make_scoring_adapter
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
)

from windlass_agent.gguf import model_file
from windlass_agent.gguf.layout import Unsupported

pytestmark = pytest.mark.torch
IDS = torch.tensor([[7, 30, 99, 201, 5, 64, 8, 311]])


def export(
    model: Path, weights: Path, merged: Path, *flags: str
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "windlass_agent.runner.export.entry",
         f"--model={model}", f"--weights={weights}", f"--merged={merged}", *flags],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


def logits(network: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = network.eval()(IDS).logits
    return found


def read(path: Path) -> "gguf.GGUFReader":
    return gguf.GGUFReader(path)


def field(reader: "gguf.GGUFReader", name: str) -> Any:
    return reader.fields[name].contents()


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a base, an adapter, both merged, and the GGUF of that."""
    folder = tmp_path_factory.mktemp("export")
    base = make_model(folder / "base")
    make_adapter(base, folder / "adapter", seed=1)
    done = export(
        base, folder / "adapter", folder / "merged",
        f"--gguf={folder / 'gguf' / 'model.gguf'}", "--name=ft:toy",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


def test_merged_weights_answer_as_the_adapter_does(exported: Path) -> None:
    base = AutoModelForCausalLM.from_pretrained(exported / "base")
    plain = logits(base)
    adapted = logits(PeftModel.from_pretrained(base, exported / "adapter"))
    merged = logits(AutoModelForCausalLM.from_pretrained(exported / "merged"))
    assert torch.allclose(merged, adapted, atol=1e-3)
    assert not torch.allclose(merged, plain, atol=0.1)
    files = {path.name for path in (exported / "merged").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= files
    assert not any(name.startswith("adapter") for name in files)


def test_gguf_holds_the_merged_model(exported: Path) -> None:
    reader = read(exported / "gguf" / "model.gguf")
    tokenizer = AutoTokenizer.from_pretrained(exported / "merged")
    assert field(reader, "general.architecture") == "llama"
    assert field(reader, "general.name") == "ft:toy"
    assert field(reader, "llama.attention.head_count_kv") == 2
    assert field(reader, "tokenizer.ggml.pre") == "gpt-2"
    assert field(reader, "tokenizer.chat_template") == tokenizer.chat_template
    assert field(reader, "tokenizer.ggml.eos_token_id") == tokenizer.eos_token_id
    tokens = field(reader, "tokenizer.ggml.tokens")
    assert tokens == tokenizer.convert_ids_to_tokens(range(len(tokens)))
    document = json.loads((exported / "merged" / "tokenizer.json").read_text())
    assert len(field(reader, "tokenizer.ggml.merges")) == len(document["model"]["merges"])
    types = dict(zip(tokens, field(reader, "tokenizer.ggml.token_type"), strict=True))
    assert types["<|im_end|>"] == gguf.TokenType.CONTROL
    # An independent reader of the format, which undoes the order of the rows.
    again = AutoModelForCausalLM.from_pretrained(
        exported / "gguf", gguf_file="model.gguf", dtype=torch.float32
    )
    merged = AutoModelForCausalLM.from_pretrained(exported / "merged")
    for (name, one), (_, other) in zip(
        sorted(merged.state_dict().items()), sorted(again.state_dict().items()), strict=True
    ):
        assert torch.allclose(one, other, atol=2e-3), name
    assert torch.allclose(logits(merged), logits(again), atol=0.1)


@pytest.mark.long
def test_slowed_positions_are_written_with_it(tmp_path: Path) -> None:
    base = make_model(tmp_path / "base")
    path = base / "config.json"
    config = json.loads(path.read_text())
    scaling = {
        "rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 128,
    }  # fmt: skip
    path.write_text(json.dumps(config | {"rope_parameters": scaling}))
    done = export(base, base, tmp_path / "unused", f"--gguf={tmp_path / 'model.gguf'}")
    assert done.returncode == 0, done.stderr
    reader = read(tmp_path / "model.gguf")
    assert field(reader, "llama.rope.freq_base") == 500000.0
    (factors,) = [one.data for one in reader.tensors if one.name == "rope_freqs.weight"]
    waves = 2 * np.pi * 500000.0 ** (np.arange(0, 16, 2) / 16)
    assert factors.shape == (8,)
    assert factors[waves < 128 / 4.0] == pytest.approx(1.0)
    assert factors[waves > 128 / 1.0] == pytest.approx(32.0)
    between = (waves > 128 / 4.0) & (waves < 128 / 1.0)
    assert between.any()
    assert ((factors[between] > 1) & (factors[between] < 32)).all()


def test_a_large_file_comes_in_parts_that_are_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = make_model(tmp_path / "base")

    def written(folder: Path) -> tuple[int, dict[str, bytes]]:
        parts = model_file.write(base, folder / "model.gguf", name="toy")
        tensors = [one for part in parts for one in read(part).tensors]
        return len(parts), {one.name: one.data.tobytes() for one in tensors}

    number, whole = written(tmp_path / "one")
    assert number == 1
    monkeypatch.setattr(model_file, "SPLIT_BYTES", 64 * 1024)
    number, split = written(tmp_path / "several")
    assert number > 1
    assert split == whole


class Made(TorchDispatchMode):  # type: ignore[misc]  # torch says nothing of its type
    """Bytes of each tensor that an operation of torch returns."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        self.bytes.append(made.nbytes)
        return made


@pytest.mark.parametrize("heads", [0, 4])
def test_no_large_tensor_is_made_with_32_bits(heads: int) -> None:
    tensor = torch.ones(64, 16, dtype=torch.bfloat16)
    with Made() as made:
        written = model_file._in_kind(tensor, heads)
    assert written.dtype == torch.float16
    assert made.bytes
    assert max(made.bytes) == written.nbytes


@pytest.mark.long
def test_a_reward_model_is_merged_with_its_head(tmp_path: Path) -> None:
    base = make_model(tmp_path / "base")
    adapter = make_scoring_adapter(base, tmp_path / "judge")
    done = export(base, adapter, tmp_path / "merged")
    assert done.returncode == 0, done.stderr
    network = AutoModelForSequenceClassification.from_pretrained(base, num_labels=1)
    adapted = logits(PeftModel.from_pretrained(network, adapter))
    merged = logits(AutoModelForSequenceClassification.from_pretrained(tmp_path / "merged"))
    assert torch.allclose(merged, adapted, atol=1e-4)


@pytest.mark.parametrize(
    ("file", "change", "said"),
    [
        (
            "config.json",
            {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}},
            "scaled by 'linear'",
        ),
        ("tokenizer.json", {"pre_tokenizer": {"type": "Metaspace"}}, "not byte-level BPE"),
        (
            "tokenizer.json",
            {
                "pre_tokenizer": {
                    "type": "Sequence",
                    "pretokenizers": [
                        {"type": "Split", "pattern": {"Regex": "x"}, "behavior": "Isolated"},
                        {"type": "ByteLevel", "use_regex": False},
                    ],
                }
            },
            "no code for how its tokenizer cuts text",
        ),
    ],
)
def test_what_gguf_has_no_form_for_is_told_beforehand(
    tmp_path: Path, file: str, change: dict[str, Any], said: str
) -> None:
    base = make_model(tmp_path / "base")
    path = base / file
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(Unsupported, match=said):
        model_file.check(base)


def test_a_check_that_fails_ends_with_a_code_of_its_own(tmp_path: Path) -> None:
    base = make_model(tmp_path / "base")
    config = base / "config.json"
    other = {"architectures": ["GPT2LMHeadModel"]}
    config.write_text(json.dumps(json.loads(config.read_text()) | other))
    done = export(base, base, tmp_path / "unused", f"--gguf={tmp_path / 'x.gguf'}", "--check")
    assert done.returncode == 2, done.stderr
    assert "architecture is none of" in done.stdout.splitlines()[-1]
