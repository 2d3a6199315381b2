"""Memory that a model takes on the devices that serve it, as its files say.

The shapes of attention: grouped queries (arXiv:2305.13245), sliding windows (arXiv:2310.06825),
latent attention (arXiv:2405.04434).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# Of a key or value, and of an adapter's weight, in 16 bits.
_BYTES = 2
_MAX_TOKENS = 2**24
# Types that have a window in some layers and do not say in which: one of so many has none.
_PATTERNS = {"gemma2": 2, "gemma3_text": 6, "cohere2": 4}
_TEXT_CONFIGS = ("text_config", "llm_config", "language_config")
# As vLLM finds them (`vllm.config.model.ModelConfig.get_num_experts`).
_EXPERTS = ("num_experts", "moe_num_experts", "n_routed_experts", "num_local_experts")
_FULL = "full_attention"
_WINDOWED = ("sliding_attention", "chunked_attention")


@dataclass(frozen=True, slots=True)
class Footprint:
    """Memory that a model takes, in bytes; keys and values in 16 bits."""

    weight_bytes: int
    # Of each token, in all layers that see every token, and in all that see a window alone.
    kv_bytes: int
    windowed_kv_bytes: int
    window: int
    # Of an adapter on all linear layers, for each of its ranks.
    adapter_bytes: int
    heads: int
    # Keys and values are divided over so many devices at most.
    kv_heads: int
    context_length: int
    # Bytes of most weights in the files; 0 where they are quantized, or nobody looked.
    weight_width: int = 0
    # Of each layer; 1 for a model without experts, 0 where nobody looked.
    experts: int = 0

    def held_bytes(self, width: int) -> int:
        """The bytes of the weights where each takes so many; as in the files where that is 0."""
        if not width or not self.weight_width:
            return self.weight_bytes
        return self.weight_bytes * width // self.weight_width

    def request_bytes(self, tokens: int) -> int:
        """The bytes of the keys and values of a request of so many tokens."""
        return self.kv_bytes * tokens + self.windowed_kv_bytes * min(tokens, self.window)


def footprint(config: Mapping[str, Any], weight_bytes: int, weight_width: int = 0) -> Footprint:
    """Returns the footprint of a config.json and its weights, as they lie in their files.

    Raises ValueError where it does not say its shape.
    """
    text = text_config(config)
    layers = _number(text, "num_hidden_layers", "n_layer", "n_layers", "num_layers")
    heads = _number(text, "num_attention_heads", "n_head", "n_heads")
    width = _number(text, "hidden_size", "n_embd", "d_model")
    context = _number(text, "max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
    kv_heads = _optional(text, "num_key_value_heads", "num_kv_heads") or heads
    if text.get("multi_query") is True:
        kv_heads = 1
    head = _optional(text, "head_dim") or max(1, width // heads)
    latent = _optional(text, "kv_lora_rank")
    if latent:
        # Keys and values are made of one vector, which each device holds whole.
        kv_heads, each = 1, (latent + _optional(text, "qk_rope_head_dim")) * _BYTES
    else:
        each = 2 * kv_heads * head * _BYTES
    window = _window(text)
    full, windowed = _layers(text, layers, window)
    return Footprint(
        weight_bytes=weight_bytes,
        kv_bytes=full * each,
        windowed_kv_bytes=windowed * each,
        window=window,
        adapter_bytes=layers * _adapter(text, width, heads * head, kv_heads * head),
        heads=heads,
        kv_heads=kv_heads,
        context_length=min(context, _MAX_TOKENS),
        weight_width=weight_width,
        experts=_optional(text, *_EXPERTS) or 1,
    )


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a config.json that is of the language model."""
    inner = (config.get(name) for name in _TEXT_CONFIGS)
    return next((one for one in inner if isinstance(one, Mapping)), config)


def _number(text: Mapping[str, Any], *names: str) -> int:
    found = _optional(text, *names)
    if not found:
        raise ValueError(f"config.json has no {names[0]!r}.")
    return found


def _optional(text: Mapping[str, Any], *names: str) -> int:
    """The first positive whole number under one of the names; 0 for none."""
    for name in names:
        value = text.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return 0


def _window(text: Mapping[str, Any]) -> int:
    """The tokens that layers with a window see; 0 where no layer has one."""
    if text.get("use_sliding_window") is False:
        return 0
    return min(_optional(text, "sliding_window", "attention_chunk_size"), _MAX_TOKENS)


def _layers(text: Mapping[str, Any], layers: int, window: int) -> tuple[int, int]:
    """The number of layers that see every token, and of those that see a window."""
    types = text.get("layer_types")
    if isinstance(types, Sequence) and not isinstance(types, str) and len(types) == layers:
        # Layers of other types, such as linear attention, keep a state of one size.
        windowed = sum(one in _WINDOWED for one in types) if window else 0
        full = sum(one == _FULL or (one in _WINDOWED and not window) for one in types)
        return full, windowed
    if not window:
        return layers, 0
    pattern = _optional(text, "sliding_window_pattern") or _PATTERNS.get(
        str(text.get("model_type")), 0
    )
    full = layers // pattern if pattern else 0
    return full, layers - full


def _adapter(text: Mapping[str, Any], width: int, queries: int, keys: int) -> int:
    """The bytes of one rank of an adapter on the linear layers of one layer, experts left out."""
    inner = _optional(text, "intermediate_size", "n_inner", "ffn_dim") or 4 * width
    attention = 2 * (width + queries) + 2 * (width + keys)
    return (attention + 3 * (width + inner)) * _BYTES
