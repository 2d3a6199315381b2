"""LoRA weights inside the loaded model; touched by the scheduler's thread alone."""

import json
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel
from safetensors import safe_open

from windlass.inference_api.errors import ApiError
from windlass.modelfiles import check_folder
from windlass_agent.engines.builtin.generation.model import LoadedModel

SCORING = "SEQ_CLS"
WEIGHTS = "adapter_model.safetensors"
WHY_LENGTH = 400
_HEAD = ".score.weight"


class AdapterWeights:
    """Adapters by key (a word of ours: PEFT's module names allow no dots)."""

    def __init__(self, model: LoadedModel):
        self._network = model.network
        self._peft: PeftModel | None = None
        self._active: str | None = None
        self._heads: dict[str, torch.Tensor] = {}

    def attach(self, key: str, path: Path) -> None:
        """Loads an adapter beside the others; raises ApiError 400 when it does not fit."""
        try:
            # Not in inference mode: PEFT changes the flags of what it creates.
            with torch.inference_mode(False), torch.no_grad():
                self._attach(key, path)
        except Exception as error:
            self._forget(key)
            # PEFT names every tensor, each on a line of its own.
            why = " ".join(str(error).split())[:WHY_LENGTH]
            message = f"The adapter does not fit this model: {why}"
            raise ApiError(message, param="lora_path", code="invalid_adapter") from error
        finally:
            self._active = ""

    def detach(self, key: str) -> None:
        """Frees an adapter's memory; no sequence may use it."""
        self._forget(key)
        self._active = ""

    def head(self, key: str | None) -> torch.Tensor | None:
        """The head that scores an adapter's hidden states; None for one that writes."""
        return None if key is None else self._heads.get(key)

    def activate(self, key: str | None) -> None:
        """Makes the next forward passes those of an adapter, or of the base model."""
        if self._peft is None or key == self._active:
            return
        tuner = self._peft.base_model
        if key is None:
            tuner.disable_adapter_layers()
        else:
            tuner.set_adapter(key, inference_mode=True)
            tuner.enable_adapter_layers()
        self._active = key

    def _attach(self, key: str, path: Path) -> None:
        config = LoraConfig.from_pretrained(str(path))
        if config.task_type == SCORING:
            self._heads[key] = _head(path, self._network)
            # Its layers lie in the body that it shares with those that write.
            config.task_type = config.modules_to_save = None
        config.inference_mode = True
        # Its tensors in the model's own type, as they would be merged.
        if self._peft is None:
            self._peft = PeftModel(
                self._network, config, adapter_name=key, autocast_adapter_dtype=False
            )
        else:
            self._peft.add_adapter(key, config, autocast_adapter_dtype=False)
        found = self._peft.load_adapter(path, adapter_name=key, autocast_adapter_dtype=False)
        # PEFT loads what fits of an adapter for a model with more layers, or with fewer.
        if strange := [name for name in found.unexpected_keys if not name.endswith(_HEAD)]:
            raise ValueError(f"it is for another base, which has {strange[0]}")
        if found.missing_keys:
            raise ValueError(f"it is for another base, which lacks {found.missing_keys[0]}")
        self._peft.eval()

    def _forget(self, key: str) -> None:
        self._heads.pop(key, None)
        if self._peft is None or key not in self._peft.peft_config:
            return
        with torch.inference_mode(False):
            if len(self._peft.peft_config) > 1:
                self._peft.delete_adapter(key)
            else:
                # Where one brought whole modules, PEFT's wrappers of them take no other adapter
                # once the last is deleted; so they go too.
                self._peft.unload()
                self._peft = None


def _head(path: Path, network: torch.nn.Module) -> torch.Tensor:
    with safe_open(path / WEIGHTS, framework="pt") as tensors:
        names = [name for name in tensors.keys() if name.endswith(_HEAD)]  # noqa: SIM118
        if len(names) != 1:
            raise ValueError("it has no `score` layer")
        head: torch.Tensor = tensors.get_tensor(names[0])
    if head.shape[0] != 1:
        raise ValueError(f"its `score` layer has {head.shape[0]} labels instead of one")
    return head.to(network.device)


def check_adapter(path: Path) -> bool:
    """True if a folder's LoRA adapter scores; raises ApiError for one not in safetensors."""
    config_path = path / "adapter_config.json"
    weights_path = path / WEIGHTS
    if not (path.is_absolute() and config_path.is_file() and weights_path.is_file()):
        raise ApiError(
            "lora_path has no adapter_config.json and adapter_model.safetensors",
            status=404,
            param="lora_path",
            code="adapter_not_found",
        )
    try:
        check_folder(path, adapter=True)
        config = json.loads(config_path.read_bytes())
    except ValueError as error:
        message = f"the adapter is refused: {error}"
        raise ApiError(message, param="lora_path", code="invalid_adapter") from error
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        raise ApiError(
            "only LoRA adapters can be served", param="lora_path", code="invalid_adapter"
        )
    if config.get("bias", "none") != "none":
        # PEFT writes biases into the base model, so that they would change every answer.
        raise ApiError(
            "an adapter with biases of its own cannot be served beside others",
            param="lora_path",
            code="invalid_adapter",
        )
    return bool(config.get("task_type") == SCORING)
