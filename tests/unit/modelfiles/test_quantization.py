"""Quantizations as real models' files say them, and the engines that read each."""

import json
from typing import Any, get_args

import pytest

from windlass.bounds import EngineName
from windlass.engine_arguments import TAKEN
from windlass.modelfiles import TensorFacts, check_document, check_header
from windlass.modelfiles.quantization import (
    READ,
    READ_ON_CPUS,
    UNKNOWN,
    Quantization,
    quantization_of,
    unreadable,
)

PLAIN, PACKED = TensorFacts(), TensorFacts(is_packed=True)
LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
AWQ = {
    "bits": 4, "group_size": 128, "modules_to_not_convert": None, "quant_method": "awq",
    "version": "gemm", "zero_point": True,
}  # fmt: skip
GPTQ = {
    "bits": 8, "checkpoint_format": "gptq", "desc_act": True, "group_size": 32, "lm_head": False,
    "meta": {"quantizer": ["gptqmodel:1.4.0"], "damp_percent": 0.1}, "quant_method": "gptq",
}  # fmt: skip
FP8 = {
    "activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
    "weight_block_size": [128, 128],
}  # fmt: skip
COMPRESSED = {
    "config_groups": {
        "group_0": {
            "targets": ["Linear"], "input_activations": None,
            "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128},
        },
        "group_1": {"targets": ["re:.*down_proj"], "weights": {"num_bits": 8, "type": "float"}},
    },
    "format": "pack-quantized", "ignore": ["lm_head", "re:.*mlp.gate$"], "kv_cache_scheme": None,
    "quant_method": "compressed-tensors", "quantization_status": "compressed",
}  # fmt: skip
BITSANDBYTES = {
    "bnb_4bit_compute_dtype": "bfloat16", "bnb_4bit_quant_type": "nf4", "load_in_4bit": True,
    "load_in_8bit": False, "quant_method": "bitsandbytes",
}  # fmt: skip
MXFP4 = {"modules_to_not_convert": ["lm_head"], "quant_method": "mxfp4"}
MODELOPT = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4"}}


@pytest.mark.parametrize(
    ("said", "method", "bits"),
    [
        (AWQ, "awq", 4),
        (GPTQ, "gptq", 8),
        (FP8, "fp8", 8),
        (COMPRESSED, "compressed-tensors", 4),
        (COMPRESSED | {"quant_method": "compressed_tensors"}, "compressed-tensors", 4),
        (BITSANDBYTES, "bitsandbytes", 4),
        ({"load_in_8bit": True}, "bitsandbytes", 8),
        (MXFP4, "mxfp4", 4),
        (MODELOPT, "modelopt_fp4", 4),
        ({"quant_method": "hqq"}, "hqq", 0),
        ({"bits": 4}, UNKNOWN, 4),
        ({"quant_method": "<b>" * 40}, UNKNOWN, 0),
        ({"quant_method": ["awq"], "bits": True}, UNKNOWN, 0),
        ("awq", UNKNOWN, 0),
    ],
)
def test_it_is_read_from_config(said: Any, method: str, bits: int) -> None:
    found = Quantization(method, bits)
    config = LLAMA | {"quantization_config": said}
    check_document("config.json", json.dumps(config).encode(), known=["config.json"])
    assert quantization_of(config, PACKED) == found
    # Also where the language model is a part of a larger one, or by compressed-tensors' old name.
    inner = {"model_type": "llava", "text_config": config}
    assert quantization_of(inner, PLAIN) == found
    assert quantization_of(LLAMA | {"compression_config": said}, PLAIN) == found


@pytest.mark.parametrize("said", [None, {}])
def test_weights_that_are_not_quantized_have_none_whatever_the_models_name(said: Any) -> None:
    config = LLAMA | {"_name_or_path": "me/llama-awq", "quantization_config": said}
    assert quantization_of(config, PLAIN) is None
    assert quantization_of(LLAMA, PACKED) == Quantization(UNKNOWN)


def facts(**tensors: tuple[str, int]) -> TensorFacts:
    """What the header of these tensors says, each of a type and so many bytes."""
    end, header = 0, {}
    for name, (dtype, size) in tensors.items():
        width = {"I32": 4, "F32": 4, "BF16": 2, "F16": 2}.get(dtype, 1)
        header[name.replace("__", ".", 1)] = {
            "dtype": dtype, "shape": [size // width], "data_offsets": [end, end + size],
        }  # fmt: skip
        end += size
    text = json.dumps(header).encode()
    return check_header("model.safetensors", text, 8 + len(text) + end)


@pytest.mark.parametrize(
    ("tensors", "is_packed", "width"),
    [
        ({"q_proj__qweight": ("I32", 64), "q_proj__scales": ("F16", 8)}, True, 0),
        ({"q_proj__weight_packed": ("I32", 64)}, True, 0),
        (
            {"q__weight": ("U8", 64), "q__weight.quant_state.bitsandbytes__nf4": ("U8", 8)},
            True,
            0,
        ),
        ({"q__weight": ("BF16", 64), "a__norm": ("F32", 8)}, False, 2),
        ({"q__weight": ("F32", 64)}, False, 4),
        ({"q__weight": ("F8_E4M3", 64), "q__weight_scale": ("F32", 8)}, False, 0),
        ({}, False, 0),
    ],
)
def test_headers_tell_packed_weights_and_their_width(
    tensors: dict[str, tuple[str, int]], is_packed: bool, width: int
) -> None:
    found = facts(**tensors)
    assert (found.is_packed, found.width) == (is_packed, width)
    both = facts(n__weight=("F16", 512))
    both.add(found)
    assert (both.is_packed, both.width) == (is_packed, 2)


def test_each_kind_of_engine_is_in_the_table() -> None:
    assert READ.keys() == TAKEN.keys() == set(get_args(EngineName))
    assert all(READ_ON_CPUS[kind] < READ[kind] for kind in READ_ON_CPUS)


def test_what_an_engine_cannot_read_is_said_with_those_that_can() -> None:
    four = Quantization("awq", 4)
    assert unreadable(four, "vllm") == unreadable(None, "builtin") == ""
    assert unreadable(four, "vllm", on_cpus=True) == ""
    assert unreadable(four, "builtin") == (
        "The weights are quantized by awq with 4 bits, which the engine 'builtin' cannot read; of "
        "the others sglang, vllm can."
    )
    assert unreadable(Quantization("mxfp4", 4), "vllm", on_cpus=True) == (
        "The weights are quantized by mxfp4 with 4 bits, which the engine 'vllm' cannot read "
        "without a GPU; of the others sglang can."
    )
    assert unreadable(Quantization("gguf", 4), "llamacpp") == ""
    assert unreadable(Quantization("hqq"), "vllm") == (
        "The weights are quantized by hqq, which the engine 'vllm' cannot read; no other engine "
        "can."
    )
    for kind in READ:
        assert "no quantization_config" in unreadable(Quantization(UNKNOWN), kind)
