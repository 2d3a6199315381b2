"""A model of Hugging Face whose parameters are views of an engine's."""

import json
from typing import Any

import torch

from windlass_vllm.refusal import Refused
from windlass_vllm.weights.handles import WeightHandles
from windlass_vllm.weights.naming import parts_of


def view_model(handles: WeightHandles, engines: dict[str, torch.Tensor]) -> Any:
    """Returns a model whose parameters are views of tensors by the engine's names.

    No parameter has memory of its own. Raises Refused where one cannot be a view.
    """
    model = _without_weights(handles)
    wanted = {name: tuple(one.shape) for name, one in model.named_parameters()}
    for name, part in parts_of(handles, wanted).items():
        view = engines[part.handle].narrow(0, part.first, part.rows)
        owner, _, last = name.rpartition(".")
        # `.data` counts changes of its own: a step of one weight must not spoil another's gradient.
        setattr(model.get_submodule(owner), last, torch.nn.Parameter(view.data))
    model.tie_weights()
    if missing := [name for name, one in model.named_parameters() if one.is_meta]:
        raise Refused("names_differ", f"{missing[0]} is no view")
    return model.train()


def _without_weights(handles: WeightHandles) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        words = json.loads(handles.config)
        config = AutoConfig.for_model(words.pop("model_type"), **words)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
    except (ValueError, KeyError, TypeError) as error:
        raise Refused("unknown_model", f"transformers cannot build the model: {error}") from error
    device = torch.device(handles.device)
    for module in model.modules():
        for name, one in module.named_buffers(recurse=False):
            module._buffers[name] = torch.zeros_like(one, device=device)
    # Only buffers have memory by now, so that this fills these alone.
    with torch.no_grad():
        model.apply(model._init_weights)
    return model
