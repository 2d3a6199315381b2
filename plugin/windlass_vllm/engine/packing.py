"""The one function of vLLM that is replaced: on x86 CPUs it packs weights and empties them."""

import inspect

import torch

_MODULE = "vllm.model_executor.layers.utils"
_FUNCTION = "dispatch_cpu_unquantized_gemm"


def keep_weights() -> bool:
    """Replaces the packing of linear weights; returns whether it is there as it was tested."""
    import vllm.model_executor.layers.utils as layers

    packing = getattr(layers, _FUNCTION, None)
    if packing is _keep:
        return True
    if packing is None or list(inspect.signature(packing).parameters) != ["layer", "remove_weight"]:
        return False
    setattr(layers, _FUNCTION, _keep)
    return True


def is_packed(module: torch.nn.Module) -> bool:
    """Returns whether a module computes with a copy of its weight."""
    linear = getattr(module, "cpu_linear", torch.nn.functional.linear)
    return linear is not torch.nn.functional.linear


def _keep(layer: torch.nn.Module, remove_weight: bool) -> None:  # noqa: ARG001  # As vLLM calls it.
    """Computes with the weight itself, in the place of packing it."""
    layer.cpu_linear = torch.nn.functional.linear
