"""Our sharding as the libraries that are installed parse it: no GPU runs it here."""

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
from accelerate.utils import DeepSpeedPlugin, FullyShardedDataParallelPlugin
from accelerate.utils.deepspeed import HfDeepSpeedConfig
from torch.distributed.fsdp import CPUOffloadPolicy

from windlass.backends import RenderContext, TRLConfig
from windlass.backends.sharding import sharding_flags

pytestmark = pytest.mark.torch


def parsed(sharding: Any, folder: Path) -> Any:
    """TRL's training arguments for two GPUs of one node."""
    context = RenderContext(
        model=folder / "model",
        dataset=folder / "data",
        output=folder / "out",
        device="cuda",
        processes=2,
    )
    args = TRLConfig(sharding=sharding).to_args(context)
    # A GPU's alone, and the parser asks for one.
    args[args.index("--bf16") + 1] = "false"
    parser = importlib.import_module("trl.scripts.sft").make_parser()
    _, training, _, _ = parser.parse_args_and_config(args)
    return training


@pytest.mark.parametrize("offloads", [False, True])
def test_fsdp2_is_what_transformers_and_accelerate_make_of_it(
    offloads: bool, tmp_path: Path
) -> None:
    training = parsed("fsdp2_offload" if offloads else "fsdp2", tmp_path)
    assert training.fsdp is True
    assert training.gradient_checkpointing is False
    plugin = FullyShardedDataParallelPlugin(**training.fsdp_plugin_args)
    assert plugin.fsdp_version == 2
    assert plugin.reshard_after_forward is True
    assert plugin.activation_checkpointing is True
    assert plugin.cpu_ram_efficient_loading is True
    assert isinstance(plugin.cpu_offload, CPUOffloadPolicy) is offloads
    assert "FULL_STATE_DICT" in str(plugin.state_dict_type)
    assert "transformer_auto_wrap" in str(plugin.auto_wrap_policy)


@pytest.mark.parametrize("stage", [2, 3])
@pytest.mark.parametrize("offloads", [False, True])
def test_zero_is_what_accelerate_makes_of_it(stage: int, offloads: bool) -> None:
    name: Any = f"zero{stage}{'_offload' if offloads else ''}"
    ((flag, text),) = sharding_flags(name, activation_checkpointing=True)
    assert flag == "deepspeed"
    config = HfDeepSpeedConfig(json.loads(str(text)))
    assert config.is_zero3() is (stage == 3)
    assert config.is_offload() is offloads
    plugin = DeepSpeedPlugin(hf_ds_config=config)
    assert plugin.zero_stage == stage
    assert (plugin.offload_optimizer_device == "cpu") is offloads
    assert bool(plugin.zero3_save_16bit_model) is (stage == 3)
