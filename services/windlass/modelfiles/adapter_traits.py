"""Demands of a LoRA adapter on an engine, as its `adapter_config.json` says, and who meets them.

The words are those of PEFT's LoraConfig. vLLM refuses by `vllm.lora.peft_helper.PEFTHelper`,
llama.cpp's adapters are written by `windlass_agent.gguf.adapter_file`, SGLang reads what
`sglang.srt.lora` knows.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

ADAPTER_CONFIG = "adapter_config.json"
# What is read of it.
CONFIG_BYTES = 64 * 1024
_MAX_RANK = 2**16
# Features that an engine may refuse, with what people call them.
FEATURES = {
    "use_dora": "a DoRA adapter",
    "modules_to_save": "an adapter with whole layers of its own",
    "trainable_token_indices": "an adapter with tokens of its own",
    "bias": "an adapter with biases of its own",
    "rank_pattern": "an adapter whose layers have different ranks",
    "alpha_pattern": "an adapter whose layers have different scales",
    "embed_tokens": "an adapter of the embeddings",
}
_REFUSED = {
    "builtin": frozenset({"bias"}),
    "llamacpp": frozenset(FEATURES),
    # Of most of them it reads the rest, and says nothing.
    "sglang": frozenset(FEATURES),
    "vllm": frozenset(FEATURES) - {"rank_pattern", "alpha_pattern", "embed_tokens"},
}


class AdapterTraits(msgspec.Struct, frozen=True):
    """The rank of an adapter, and those of its features that an engine may refuse."""

    rank: int = 0
    features: tuple[str, ...] = ()


def adapter_traits(content: bytes) -> AdapterTraits | None:
    """Returns the traits of such a file's bytes; None where it is none of a LoRA adapter."""
    try:
        config = msgspec.json.decode(content)
    except (ValueError, RecursionError):
        # msgspec's own errors, and one of UTF-8.
        return None
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        return None
    scores = config.get("task_type") == "SEQ_CLS"
    found = tuple(name for name in FEATURES if _has(config, name, scores=scores))
    return AdapterTraits(rank=_rank(config), features=found)


def refusal(engine: str, traits: AdapterTraits, max_rank: int) -> str:
    """Returns why a kind of engine does not load such an adapter; empty if it does.

    `max_rank` is the highest that it loads, 0 for any.
    """
    for name in traits.features:
        if name in _REFUSED.get(engine, ()):
            return f"it is {FEATURES[name]}"
    if 0 < max_rank < traits.rank:
        return f"its rank of {traits.rank} is more than the engine's {max_rank}"
    return ""


def _has(config: Mapping[str, Any], name: str, *, scores: bool) -> bool:
    if name == "bias":
        return bool(config.get(name, "none") != "none")
    if name == "embed_tokens":
        # One of the layers that it changes, by the name of the most.
        modules = config.get("target_modules")
        return name in modules if isinstance(modules, list) else False
    if name == "modules_to_save" and scores:
        # The head that scores is a part of every reward model.
        return config.get(name) not in (None, [], ["score"])
    return bool(config.get(name))


def _rank(config: Mapping[str, Any]) -> int:
    pattern = config.get("rank_pattern")
    ranks = [config.get("r"), *(pattern.values() if isinstance(pattern, dict) else ())]
    return max((one for one in ranks if type(one) is int and 0 < one <= _MAX_RANK), default=0)
