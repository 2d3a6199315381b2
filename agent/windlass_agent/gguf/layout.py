"""Parts that the files of models and adapters share: architectures, and the order of rows."""

from typing import Any

import gguf
import torch

ARCHITECTURES = {
    "LlamaForCausalLM": gguf.MODEL_ARCH.LLAMA,
    "MistralForCausalLM": gguf.MODEL_ARCH.LLAMA,
    "Qwen2ForCausalLM": gguf.MODEL_ARCH.QWEN2,
}


class Unsupported(Exception):
    """A model that cannot be written as GGUF here, and why."""


def architecture_of(config: Any) -> gguf.MODEL_ARCH:
    """GGUF's name of the architecture of a configuration; raises Unsupported."""
    for name in config.architectures or ():
        if name in ARCHITECTURES:
            return ARCHITECTURES[name]
    raise Unsupported(f"its architecture is none of {', '.join(ARCHITECTURES)}")


def heads_of(tensor: str, config: Any, architecture: gguf.MODEL_ARCH) -> int:
    """Heads of the projection `tensor` whose rows llama.cpp has in another order; 0 for none."""
    if architecture is not gguf.MODEL_ARCH.LLAMA:
        return 0
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    return int(heads.get(tensor.split(".")[-2], 0))


def interleaved(tensor: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows of a projection in the order of llama.cpp, which rotates pairs and not halves."""
    halves = tensor.reshape(heads, 2, tensor.shape[0] // heads // 2, *tensor.shape[1:])
    return halves.swapaxes(1, 2).reshape(tensor.shape)
