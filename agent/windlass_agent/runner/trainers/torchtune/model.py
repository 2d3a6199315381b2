"""TorchTune's builder for a model that is described by its `config.json`."""

from collections.abc import Mapping
from typing import Any

from windlass.backends.torchtune.document import Adapter
from windlass_agent.runner.protocol.outcome import Failure

# What TorchTune's rotary embedding has built in where it scales at all.
_SCALING = {
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
_DEFAULT_THETA = 10_000.0
# 256 scales, each of 64 weights.
_NF4_BLOCK = 64 * 256
_FAMILIES = {"llama": "LLAMA3_2", "qwen2": "QWEN2"}


def model_type(config: Mapping[str, Any]) -> str:
    """Returns TorchTune's name for the layout of the weights; raises Failure."""
    family = config.get("model_type")
    if family not in _FAMILIES:
        raise _unfit(f"it trains {' and '.join(_FAMILIES)} models, and this is of type {family}")
    return _FAMILIES[str(family)]


def component(
    config: Mapping[str, Any], adapter: Adapter | None, *, max_tokens: int
) -> dict[str, Any]:
    """Returns the builder of a model and its arguments, for sequences of up to `max_tokens`.

    Raises Failure `model_not_supported` for an architecture that TorchTune has not.
    """
    kind = model_type(config)
    _check(config)
    heads = config["num_attention_heads"]
    rope = _rope(config)
    built = {
        "vocab_size": config["vocab_size"],
        "num_layers": config["num_hidden_layers"],
        "num_heads": heads,
        "num_kv_heads": config.get("num_key_value_heads") or heads,
        "embed_dim": config["hidden_size"],
        "intermediate_dim": config["intermediate_size"],
        "max_seq_len": max_tokens,
        "norm_eps": config.get("rms_norm_eps", 1e-6),
        "rope_base": rope.get("rope_theta", _DEFAULT_THETA),
        "tie_word_embeddings": bool(config.get("tie_word_embeddings", False)),
    }
    if kind == "LLAMA3_2":
        built["scale_factor"] = _scale(rope)
    elif rope.get("rope_type", "default") != "default":
        raise _unfit(f"it has no '{rope['rope_type']}' scaling of positions for this type")
    # Its modules are its names of the layouts, in lower case.
    family = kind.lower()
    if adapter is None:
        return {"_component_": f"torchtune.models.{family}.{family}", **built}
    if adapter.load_in_4bit:
        _check_blocks(built)
    return {
        "_component_": f"torchtune.models.{family}.lora_{family}",
        **built,
        "lora_attn_modules": adapter.attention_modules,
        "apply_lora_to_mlp": adapter.has_mlp,
        "apply_lora_to_output": False,
        "lora_rank": adapter.rank,
        "lora_alpha": adapter.alpha,
        "lora_dropout": adapter.dropout,
        "use_dora": adapter.use_dora,
        "quantize_base": adapter.load_in_4bit,
    }


def _check_blocks(built: Mapping[str, Any]) -> None:
    width = built["embed_dim"]
    keys = width // built["num_heads"] * built["num_kv_heads"]
    for size in (width, keys, built["intermediate_dim"]):
        if width * size % _NF4_BLOCK:
            raise _unfit(
                f"in 4 bits a matrix has a multiple of {_NF4_BLOCK} weights, "
                f"and one of this has {width} x {size}"
            )


def _check(config: Mapping[str, Any]) -> None:
    heads, width = config["num_attention_heads"], config["hidden_size"]
    if (config.get("head_dim") or width // heads) * heads != width:
        raise _unfit("its attention heads are not the model's width divided by their number")
    for name in ("attention_bias", "mlp_bias", "use_sliding_window"):
        if config.get(name):
            raise _unfit(f"its builders do not support {name}")
    if config.get("hidden_act", "silu") != "silu":
        raise _unfit(f"its builders do not support activation '{config['hidden_act']}'")


def _rope(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The rotary embedding's settings, which releases of transformers have written in two ways."""
    if parameters := config.get("rope_parameters"):
        return dict(parameters)
    scaling = dict(config.get("rope_scaling") or {})
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    theta = config.get("rope_theta", _DEFAULT_THETA)
    return {**scaling, "rope_type": kind, "rope_theta": theta}


def _scale(rope: Mapping[str, Any]) -> float:
    kind = rope.get("rope_type", "default")
    if kind == "default":
        return 1.0
    if kind != "llama3" or any(rope.get(name) != value for name, value in _SCALING.items()):
        raise _unfit(f"it has no '{kind}' scaling of positions with these settings")
    return float(rope["factor"])


def _unfit(reason: str) -> Failure:
    return Failure(
        "model_not_supported",
        f"TorchTune cannot train this model: {reason}. Try the backend trl.",
        param="model",
    )
