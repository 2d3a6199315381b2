"""What a training worker sees of an engine, without one: random weights in a shared file."""

import os

import torch

from windlass_vllm.training.seen_engine import SeenEngine
from windlass_vllm.training.viewed_model import view_model
from windlass_vllm.weights.handles import WEIGHTS, Handle, WeightHandles
from windlass_vllm.weights.private_folder import OwnFolder
from windlass_vllm.weights.shared_files import open_shared, place
from windlass_vllm.weights.step_counter import StepCounter


def seen_engine(own: OwnFolder, *, layers: int, hidden: int) -> SeenEngine:
    """A Llama of float32, of which a layer of 1024 hidden numbers has 32 MiB."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(
        "llama",
        vocab_size=500,
        hidden_size=hidden,
        intermediate_size=hidden * 11 // 8,
        num_hidden_layers=layers,
        num_attention_heads=8,
        num_key_value_heads=8,
    )
    with torch.device("meta"):
        parameters = dict(AutoModelForCausalLM.from_config(config).named_parameters())
    sizes = {name: 4 * one.numel() for name, one in parameters.items()}
    offsets, size = place(sizes)
    handles = WeightHandles(
        generation=1,
        device="cpu",
        size=size,
        context=64,
        packed={},
        prefixes={},
        config=config.to_json_string(use_diff=False),
        handles=tuple(
            Handle(name, "float32", tuple(one.shape), tuple(one.stride()), offsets[name], len(one))
            for name, one in parameters.items()
        ),
    )
    with own.opened(WEIGHTS, new=True) as descriptor:
        os.posix_fallocate(descriptor, 0, size)
    live = open_shared(own, handles)
    for one in live.values():
        torch.nn.init.normal_(one, std=0.02)
    return SeenEngine(handles, live, view_model(handles, live), StepCounter(own, new=True))
