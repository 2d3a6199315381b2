"""Models with experts, as TRL 1.16.0 and PEFT 0.21.2 take them."""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

_READ, _SAID = "num_experts", "num_local_experts"
_ALL = "all-linear"
# Layers that PEFT takes for those of experts (`peft.utils.transformers_weight_conversion`).
_OF_EXPERTS = frozenset({"gate", "gate_proj", "up_proj", "down_proj", "w1", "w2", "w3"})


def name_experts(model: Path) -> None:
    """Lets the type of a model's configuration answer to `num_experts`, where it says otherwise.

    TRL balances the use of experts by it (`trl.trainer.utils.add_fused_lm_head`), and fails on a
    Granite or Phi with experts.
    """
    config = AutoConfig.from_pretrained(model).get_text_config()
    if hasattr(config, _SAID) and not hasattr(config, _READ):
        kind = type(config)
        kind.attribute_map = {**kind.attribute_map, _READ: kind.attribute_map.get(_SAID, _SAID)}


def leave_experts(model_args: Any) -> None:
    """Puts an adapter on all linear layers but those of experts, where a model has some.

    In Transformers 5 experts are no linear layers. PEFT would adapt their parameters, which it
    cannot do with dropout, and which no engine loads.
    """
    if not model_args.use_peft or model_args.lora_target_modules != _ALL:
        return
    config = AutoConfig.from_pretrained(model_args.model_name_or_path)
    text = config.get_text_config()
    if not (hasattr(text, _READ) or hasattr(text, _SAID)):
        return
    with torch.device("meta"):
        network = AutoModelForCausalLM.from_config(config)
    layers = {
        name.rpartition(".")[2]
        for name, module in network.named_modules()
        if isinstance(module, torch.nn.Linear) and module is not network.get_output_embeddings()
    }
    model_args.lora_target_modules = sorted(layers - _OF_EXPERTS)
