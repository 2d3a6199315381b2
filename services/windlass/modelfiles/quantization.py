"""Quantization of a model's weights, as its files say, and which engines read what.

The words are those of `quant_method` in config.json. vLLM's are of
`vllm.model_executor.layers.quantization`, those without a GPU of its kernels for CPUs
(`vllm.model_executor.kernels.linear`); SGLang's are of its `--quantization`.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from windlass.modelfiles.footprint import text_config
from windlass.modelfiles.weights import TensorFacts
from windlass.modelfiles.weights.gguf import bits_of

# Of packed integers that no word says how to read.
UNKNOWN = "unknown"
GGUF = "gguf"
_WORD = re.compile(r"[a-z0-9][a-z0-9_.-]{0,31}")
_KEYS = ("quantization_config", "compression_config")
_BITS = {"fp8": 8, "fbgemm_fp8": 8, "mxfp4": 4, "mxfp8": 8, "modelopt_fp4": 4, "modelopt_mxfp8": 8}
_MAX_BITS = 16
# What each kind of engine reads beside weights that are not quantized.
READ: Mapping[str, frozenset[str]] = {
    # Transformers reads them with packages that no image has, or as weights of twice the size.
    "builtin": frozenset(),
    # Its files are of its own form, or written from weights that are not quantized.
    "llamacpp": frozenset([GGUF]),
    "sglang": frozenset(
        ["auto-round", "awq", "bitsandbytes", "compressed-tensors", "fp8", "gptq", "modelopt",
         "modelopt_fp4", "modelopt_mixed", "mxfp4", "mxfp8", "quark"]
    ),
    "vllm": frozenset(
        ["auto-round", "awq", "compressed-tensors", "fp8", "gptq", "modelopt", "modelopt_fp4",
         "modelopt_mixed", "modelopt_mxfp8", "mxfp4", "mxfp8", "quark", "torchao"]
    ),
}  # fmt: skip
# The same of an engine without GPUs, where that is less.
READ_ON_CPUS: Mapping[str, frozenset[str]] = {
    "vllm": frozenset(["awq", "compressed-tensors", "fp8", "gptq"]),
}


class Quantization(msgspec.Struct, frozen=True, omit_defaults=True):
    """A method of quantization, and the bits of a weight; 0 where the files do not say."""

    method: str
    bits: int = 0


def quantization_of(config: Mapping[str, Any], facts: TensorFacts) -> Quantization | None:
    """Returns the quantization that a config.json and the weights say; None for weights without.

    A file of GGUF is one whatever its weights are: who reads it reads nothing else.
    """
    if facts.is_gguf:
        return Quantization(GGUF, bits_of(facts.common))
    parts = (config, text_config(config))
    said = next((part[key] for part in parts for key in _KEYS if part.get(key)), None)
    if isinstance(said, Mapping):
        method = _method(said)
        return Quantization(method, _bits(method, said))
    return Quantization(UNKNOWN) if facts.is_packed or said else None


def unreadable(quantization: Quantization | None, engine: str, *, on_cpus: bool = False) -> str:
    """Returns why a kind of engine does not read such weights; empty if it does.

    `on_cpus` is True for one that has no GPU.
    """
    if quantization is None or quantization.method in _read(engine, on_cpus=on_cpus):
        return ""
    if quantization.method == UNKNOWN:
        return (
            "The weights are packed integers, and config.json has no quantization_config that says "
            "how to read them; import them with the one of their author."
        )
    said = f"{quantization.method} with {quantization.bits} bits"
    said = said if quantization.bits else quantization.method
    able = sorted(one for one in READ if quantization.method in READ[one])
    where = " without a GPU" if engine in able else ""
    others = ", ".join(one for one in able if one != engine)
    hint = f"of the others {others} can" if others else "no other engine can"
    return (
        f"The weights are quantized by {said}, which the engine {engine!r} cannot read{where}; "
        f"{hint}."
    )


def _read(engine: str, *, on_cpus: bool) -> frozenset[str]:
    # What a kind of a newer release reads is not known here; it says so itself.
    found = READ.get(engine, frozenset())
    return READ_ON_CPUS.get(engine, found) if on_cpus else found


def _method(said: Mapping[str, Any]) -> str:
    """The word of a method, as vLLM and Transformers find it."""
    method = said.get("quant_method")
    if isinstance(method, str) and method:
        word = method.lower().replace("compressed_tensors", "compressed-tensors")
        return word if _WORD.fullmatch(word) else UNKNOWN
    if said.get("load_in_4bit") is True or said.get("load_in_8bit") is True:
        return "bitsandbytes"
    producer, inner = said.get("producer"), said.get("quantization")
    if isinstance(producer, Mapping) and producer.get("name") == "modelopt":
        algorithm = inner.get("quant_algo") if isinstance(inner, Mapping) else None
        return "modelopt_fp4" if algorithm == "NVFP4" else "modelopt"
    return UNKNOWN


def _bits(method: str, said: Mapping[str, Any]) -> int:
    """The bits of the smallest weights; 0 where nothing says them."""
    if method == "bitsandbytes":
        return 4 if said.get("load_in_4bit") is True else 8 if said.get("load_in_8bit") else 0
    found = [one for one in _numbers(said) if type(one) is int and 0 < one <= _MAX_BITS]
    return min(found, default=_BITS.get(method, 0))


def _numbers(said: Mapping[str, Any]) -> Iterator[Any]:
    yield said.get("bits")
    yield said.get("w_bit")
    groups = said.get("config_groups")
    for group in groups.values() if isinstance(groups, Mapping) else ():
        weights = group.get("weights") if isinstance(group, Mapping) else None
        if isinstance(weights, Mapping):
            yield weights.get("num_bits")
