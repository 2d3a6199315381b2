"""Handles of a model's parameters, by what vLLM's modules say, and reasons to refuse them."""

from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import torch

from windlass_vllm.engine.packing import is_packed
from windlass_vllm.refusal import Refused
from windlass_vllm.weights.handles import DTYPES, Handle


def refuse_unshareable(config: Any, model: torch.nn.Module) -> None:
    """Raises Refused with the reason why a model's weights cannot be shared, if there is one."""
    parallel = config.parallel_config
    if parallel.world_size > 1 or parallel.data_parallel_size > 1:
        raise Refused("many_ranks", "the weights are spread over more than one rank")
    if config.model_config.quantization or config.quant_config is not None:
        raise Refused("quantized", "the weights are quantized")
    if config.lora_config is not None:
        raise Refused("adapters_on", "adapters would lose the base that they were made for")
    if config.model_config.trust_remote_code:
        raise Refused("foreign_code", "the model comes with code of its own")
    if config.device_config.device_type == "cpu" and not config.model_config.enforce_eager:
        raise Refused("graph_compiled", "start vLLM with --enforce-eager")
    for name, module in model.named_modules():
        if is_packed(module):
            raise Refused("weights_packed", f"{name} computes with a packed copy of its weight")
    for name, one in model.named_parameters():
        _refuse_parameter(name, one)


def _refuse_parameter(name: str, one: torch.Tensor) -> None:
    if one.ndim > 2 and ".experts." in name:
        raise Refused("experts_fused", f"{name} holds all experts of its layer")
    if not one.numel():
        raise Refused("weights_packed", f"{name} is empty")
    if not one.is_contiguous():
        raise Refused("transposed", f"{name} does not lie row by row")
    if one.dtype not in DTYPES.values():
        raise Refused("quantized", f"{name} is of {one.dtype}")


def handles_of(model: torch.nn.Module, offsets: dict[str, int]) -> Iterator[Handle]:
    """Yields a handle for each parameter, with its offset in bytes."""
    for name, one in model.named_parameters():
        module = model.get_submodule(name.rpartition(".")[0])
        shape = tuple(one.shape)
        cuts = tuple(accumulate(getattr(module, "output_sizes", None) or ()))
        yield Handle(
            name=name,
            dtype=str(one.dtype).removeprefix("torch."),
            shape=shape,
            strides=tuple(one.stride()),
            offset=offsets[name],
            rows=int(getattr(module, "org_vocab_size", shape[0])) if len(shape) == 2 else shape[0],
            cuts=cuts if cuts and cuts[-1] == shape[0] else (),
        )


def packed_of(model: torch.nn.Module) -> dict[str, tuple[str, ...]]:
    """Returns the modules that hold several of Hugging Face's, with these in order."""
    return {
        name: tuple(inner)
        for name, inner in getattr(model, "packed_modules_mapping", {}).items()
        if len(inner) > 1
    }


def prefixes_of(model: torch.nn.Module) -> dict[str, str]:
    """Returns prefixes of names of Hugging Face with those of the engine."""
    mapper = getattr(model, "hf_to_vllm_mapper", None)
    prefixes = getattr(mapper, "orig_to_new_prefix", {})
    return {old: new for old, new in prefixes.items() if new is not None}
