"""Run by vLLM's interpreter: tiny models that it loads, shared, and seen by Hugging Face's names.

`python sharing.py FOLDER`: prints, for each architecture, what it found, as JSON.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

from windlass_vllm.engine import versions
from windlass_vllm.engine.extension import SharedWeightsWorker
from windlass_vllm.engine.registration import register
from windlass_vllm.refusal import Refused
from windlass_vllm.training.viewed_model import view_model
from windlass_vllm.weights.handles import read_handles
from windlass_vllm.weights.private_folder import OwnFolder
from windlass_vllm.weights.shared_files import open_shared

KEY = b"k" * 32
# The vocabulary is no multiple of 64, so that vLLM pads it; heads are wider than hidden / heads.
SIZES: dict[str, Any] = {
    "vocab_size": 508,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 256,
    "dtype": "bfloat16",
}
TIED: dict[str, Any] = {"tie_word_embeddings": True}
EXPERTS: dict[str, Any] = {"num_local_experts": 4, "num_experts_per_tok": 2}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama-tied": ("llama", TIED | {"attention_bias": True, "mlp_bias": True}),
    "mistral": ("mistral", {}),
    "qwen2": ("qwen2", TIED | {"head_dim": 16}),
    "qwen3": ("qwen3", {}),
    "gemma": ("gemma", {}),
    "gemma2": ("gemma2", {}),
    "gemma3": ("gemma3_text", {}),
    "phi3": ("phi3", {"pad_token_id": 0}),
    "granite": ("granite", {}),
    "mixtral": ("mixtral", EXPERTS),
}


class OneWorker(SharedWeightsWorker):
    """The extension without vLLM's worker around it."""

    def __init__(self, config: Any, model: torch.nn.Module) -> None:
        self.vllm_config, self._model = config, model

    def get_model(self) -> torch.nn.Module:
        return self._model


def write_model(folder: Path, name: str) -> Any:
    """A random model of Hugging Face, saved."""
    from transformers import AutoConfig, AutoModelForCausalLM

    kind, words = MODELS[name]
    torch.manual_seed(len(name))
    config = AutoConfig.for_model(kind, **SIZES | words)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    for one in model.parameters():
        torch.nn.init.normal_(one)
    model.save_pretrained(folder)
    return model


def load(folder: Path) -> tuple[Any, torch.nn.Module]:
    """A model that vLLM loaded as it does when it serves."""
    from vllm.config import set_current_vllm_config
    from vllm.distributed import parallel_state
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.model_loader import get_model

    arguments = EngineArgs(str(folder), skip_tokenizer_init=True, enforce_eager=True)
    config = arguments.create_engine_config()
    with set_current_vllm_config(config):
        # Models with experts ask for groups of their own.
        parallel_state.destroy_model_parallel()
        method = f"file://{folder}/meet"
        parallel_state.init_distributed_environment(1, 0, method, 0, "gloo")
        parallel_state.initialize_model_parallel(1, 1)
        return config, get_model(vllm_config=config)


def look(folder: Path, name: str) -> dict[str, object]:
    """Shares what vLLM loaded and compares each view with what was saved."""
    saved = write_model(folder, name)
    worker = OneWorker(*load(folder))
    own = OwnFolder(folder)
    try:
        said = worker.windlass_share(str(own.path), 1, KEY)
        if "reason" in said:
            return said
        handles = read_handles(own, 1, KEY)
        engines = open_shared(own, handles)
        model = view_model(handles, engines)
        begins = {one.untyped_storage().data_ptr() for one in engines.values()}
        views = {one.untyped_storage().data_ptr() for one in model.parameters()}
        with torch.no_grad():
            ids = torch.arange(3, 40)[None]
            same = torch.equal(model.eval()(ids).logits, saved.eval()(ids).logits)
            engines[handles.handles[0].name].flatten()[0] = 8.0
            first = next(iter(worker.get_model().parameters()))
            moved = first.flatten()[0].item() == 8.0 and worker.windlass_is_shared()
            first.flatten()[0] = saved.get_parameter(handles.handles[0].name).flatten()[0]
        expected, found = saved.state_dict(), model.state_dict()
        return {
            "views": views == begins and len(views) == 1,
            "equal": all(torch.equal(one, expected[key]) for key, one in found.items()),
            "names": sorted(found) == sorted(expected),
            "logits": same,
            "moved": moved,
        }
    except Refused as error:
        return {"reason": error.reason, "message": str(error)}
    finally:
        own.close()


def untouched() -> dict[str, bool]:
    """Whether vLLM's function stays where the plugin is not named, and in a version not tested."""
    from vllm.model_executor.layers import utils

    original, version = utils.dispatch_cpu_unquantized_gemm, versions.TESTED
    found = {}
    for why, named, tested in (
        ("unset", None, version),
        ("others", "other", version),
        ("version", "windlass_vllm", ("0.1.0",)),
    ):
        os.environ.pop("VLLM_PLUGINS", None)
        if named is not None:
            os.environ["VLLM_PLUGINS"] = named
        versions.TESTED = tested
        register()
        found[why] = utils.dispatch_cpu_unquantized_gemm is original
    versions.TESTED = version
    os.environ["VLLM_PLUGINS"] = "windlass_vllm"
    register()
    found["named"] = utils.dispatch_cpu_unquantized_gemm is not original
    return found


def main() -> None:
    found: dict[str, object] = {"untouched": untouched()}
    for name in sys.argv[2:] or MODELS:
        folder = Path(sys.argv[1]) / name
        folder.mkdir()
        found[name] = look(folder, name)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
