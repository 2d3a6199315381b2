"""Conversion of a safetensors model to GGUF, llama.cpp's format, with 16-bit weights.

What llama.cpp's own converter does, for the architectures below and byte-level BPE tokenizers;
anything else is refused, since a file that loads and answers wrongly is worse than none.
"""

import json
import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from safetensors import safe_open
from transformers import AutoConfig, AutoTokenizer
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from windlass_agent.gguf.layout import Unsupported, architecture_of, heads_of, interleaved

Array = np.ndarray[Any, Any]
# Larger than that a file is written as several, which llama.cpp reads as one.
SPLIT_BYTES = 4_000_000_000
# How a tokenizer cuts text before BPE, by its pattern: llama.cpp has code for each.
_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{numbers}"
    r"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_PATTERNS = {
    "": "gpt-2",
    _SPLIT.format(numbers=r"\p{N}{1,3}"): "llama-bpe",
    _SPLIT.format(numbers=r"\p{N}"): "qwen2",
}


def check(model: Path) -> None:
    """Raises Unsupported for a folder that `write` would refuse."""
    config = AutoConfig.from_pretrained(model, local_files_only=True)
    architecture_of(config)
    _rope_type(config)
    _pre_tokenizer(_tokenizer(model))


def write(model: Path, target: Path, *, name: str) -> list[Path]:
    """Writes `target` (or numbered parts beside it) and returns the files; raises Unsupported."""
    config = AutoConfig.from_pretrained(model, local_files_only=True)
    architecture = architecture_of(config)
    target.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(
        target,
        gguf.MODEL_ARCH_NAMES[architecture],
        split_max_size=SPLIT_BYTES,
    )
    writer.add_name(name)
    _add_config(writer, config)
    _add_vocabulary(writer, model, config)
    # Twice, so that no more than one of them is in memory, and none in a file in between.
    for tensor_name, shape, _ in _tensors(model, config, architecture):
        kind = _kind(shape)
        writer.add_tensor_info(tensor_name, shape, kind, math.prod(shape) * kind.itemsize)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for _, _, read in _tensors(model, config, architecture):
        writer.write_tensor_data(read())
    writer.close()
    return sorted(target.parent.glob(f"{target.stem}*.gguf"))


def _add_config(writer: gguf.GGUFWriter, config: Any) -> None:
    head = _head_size(config)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_rope_dimension_count(head)
    writer.add_rope_freq_base(float(config.rope_parameters["rope_theta"]))
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)


def _add_vocabulary(writer: gguf.GGUFWriter, model: Path, config: Any) -> None:
    tokenizer = AutoTokenizer.from_pretrained(model, local_files_only=True)
    by_id = {number: token for token, number in tokenizer.get_vocab().items()}
    added = {number: one.special for number, one in tokenizer.added_tokens_decoder.items()}
    tokens, types = [], []
    for number in range(config.vocab_size):
        kind = gguf.TokenType.NORMAL if number in by_id else gguf.TokenType.UNUSED
        if number in added:
            kind = gguf.TokenType.CONTROL if added[number] else gguf.TokenType.USER_DEFINED
        # Embeddings may outnumber the tokens, to be of a rounder size.
        tokens.append(by_id.get(number, f"[PAD{number}]"))
        types.append(kind)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(_pre_tokenizer(_tokenizer(model)))
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    special = gguf.SpecialVocab(model, load_merges=True, n_vocab=config.vocab_size)
    special.chat_template = tokenizer.chat_template
    for role in ("bos", "eos", "pad", "unk"):
        token_id = getattr(tokenizer, f"{role}_token_id", None)
        if token_id is not None:
            special.special_token_ids[role] = token_id
    special.add_to_gguf(writer, quiet=True)


def _tensors(
    model: Path, config: Any, architecture: gguf.MODEL_ARCH
) -> Iterator[tuple[str, tuple[int, ...], Callable[[], Array]]]:
    """Yields names, shapes, and what reads a tensor before the next one is asked for."""
    names = gguf.get_tensor_name_map(architecture, config.num_hidden_layers)
    for file in sorted(model.glob("*.safetensors")):
        with safe_open(file, framework="pt") as weights:
            for ours in weights.keys():  # noqa: SIM118 - it is no mapping
                theirs = names.get_name(ours, try_suffixes=(".weight", ".bias"))
                if theirs is None:
                    raise Unsupported(f"it has a tensor {ours!r} that GGUF has no name for")
                shape = tuple(weights.get_slice(ours).get_shape())
                yield (
                    theirs,
                    shape,
                    partial(_read, weights, ours, heads_of(ours, config, architecture)),
                )
    if _rope_type(config) == "llama3":
        factors = _rope_factors(config)
        name = gguf.TENSOR_NAMES[gguf.MODEL_TENSOR.ROPE_FREQS] + ".weight"
        yield name, factors.shape, lambda: factors


def _kind(shape: tuple[int, ...]) -> np.dtype[Any]:
    return np.dtype(np.float32 if len(shape) == 1 else np.float16)


def _read(weights: Any, name: str, heads: int) -> Array:
    read: Array = _in_kind(weights.get_tensor(name), heads).numpy()
    return read


def _in_kind(tensor: torch.Tensor, heads: int) -> torch.Tensor:
    """A tensor as the file has it; at once, since the largest takes most of the memory."""
    tensor = tensor.float() if tensor.ndim == 1 else tensor.half()
    return interleaved(tensor, heads) if heads else tensor


def _rope_factors(config: Any) -> Array:
    """Scaling factor of each rotary frequency: [head size / 2]."""
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    head = _head_size(config)
    steps = torch.arange(0, head, 2, dtype=torch.float32) / head
    plain = 1.0 / (config.rope_parameters["rope_theta"] ** steps)
    factors: Array = (plain / scaled.float()).numpy().astype(np.float32)
    return factors


def _rope_type(config: Any) -> str:
    kind = str((config.rope_parameters or {}).get("rope_type") or "default")
    if kind not in ("default", "llama3"):
        raise Unsupported(f"its positions are scaled by {kind!r}")
    return kind


def _head_size(config: Any) -> int:
    return int(
        getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    )


def _tokenizer(model: Path) -> dict[str, Any]:
    path = model / "tokenizer.json"
    if not path.exists():
        raise Unsupported("it has no tokenizer.json")
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def _pre_tokenizer(document: dict[str, Any]) -> str:
    """llama.cpp's name of the tokenizer's pre-tokenization."""
    if document["model"].get("type") != "BPE" or document["model"].get("byte_fallback"):
        raise Unsupported("its tokenizer is not byte-level BPE")
    declared = document.get("pre_tokenizer") or {}
    steps = declared.get("pretokenizers") or [declared]
    if not steps or steps[-1].get("type") != "ByteLevel" or len(steps) > 2:
        raise Unsupported("its tokenizer is not byte-level BPE")
    pattern = ""
    if len(steps) == 2:
        pattern = str((steps[0].get("pattern") or {}).get("Regex"))
    elif not steps[0].get("use_regex", True):
        pattern = "none"
    if pattern not in _PATTERNS:
        raise Unsupported("llama.cpp has no code for how its tokenizer cuts text")
    return _PATTERNS[pattern]
