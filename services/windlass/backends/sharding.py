"""Sharding of a training's state among its GPUs: FSDP2 and DeepSpeed's ZeRO, by size.

Without sharding every process holds everything. What that is, in bytes of the base's weights
(two for each weight): eight times as much where every weight is trained (weights, gradients and
Adam's two moments, four bytes each), about once where an adapter is.
`docs/reference/sharding.md` says the same, and is tested against this. Pure.
"""

from typing import Any, Literal

import msgspec

Sharding = Literal["fsdp2", "fsdp2_offload", "zero2", "zero2_offload", "zero3", "zero3_offload"]

# Of a GPU with 80 GB, the rest is for activations.
GPU_BYTES = 60_000_000_000
FULL_FACTOR = 8
LORA_FACTOR = 1


def auto_sharding(model_bytes: int, *, lora: bool, processes: int) -> Sharding | None:
    """Returns None where everything fits each GPU, or there is only one."""
    state = model_bytes * (LORA_FACTOR if lora else FULL_FACTOR)
    if processes == 1 or state <= GPU_BYTES:
        return None
    return "fsdp2" if state <= GPU_BYTES * processes else "fsdp2_offload"


def sharding_flags(
    sharding: Sharding, *, activation_checkpointing: bool
) -> list[tuple[str, object]]:
    """Returns transformers' flags, their values JSON on one line."""
    offloads = sharding.endswith("_offload")
    if sharding.startswith("fsdp2"):
        config = _fsdp2(offloads=offloads, activation_checkpointing=activation_checkpointing)
        # It has no value.
        return [("fsdp", ()), ("fsdp_config", _json(config))]
    stage = 3 if sharding.startswith("zero3") else 2
    return [("deepspeed", _json(_zero(stage, offloads=offloads)))]


def _fsdp2(*, offloads: bool, activation_checkpointing: bool) -> dict[str, Any]:
    return {
        "version": 2,
        "reshard_after_forward": True,
        "cpu_offload": offloads,
        # Its own, since the Trainer's gathers the weights once more.
        "activation_checkpointing": activation_checkpointing,
        "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        # One process reads the weights, and the others get their part of them.
        "cpu_ram_efficient_loading": True,
        # Checkpoints are whole models, which can be served.
        "state_dict_type": "FULL_STATE_DICT",
    }


def _zero(stage: int, *, offloads: bool) -> dict[str, Any]:
    zero: dict[str, Any] = {
        "stage": stage,
        "overlap_comm": True,
        "contiguous_gradients": True,
        "reduce_bucket_size": "auto",
    }
    pinned = {"device": "cpu", "pin_memory": True}
    if offloads:
        zero["offload_optimizer"] = pinned
    if stage == 3:
        zero |= {
            "stage3_prefetch_bucket_size": "auto",
            "stage3_param_persistence_threshold": "auto",
            "stage3_gather_16bit_weights_on_model_save": True,
        }
        if offloads:
            zero["offload_param"] = pinned
    return {
        "bf16": {"enabled": "auto"},
        "fp16": {"enabled": "auto"},
        "zero_optimization": zero,
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
    }


def _json(config: dict[str, Any]) -> str:
    return msgspec.json.encode(config).decode()
