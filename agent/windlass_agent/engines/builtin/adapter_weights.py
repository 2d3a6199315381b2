"""LoRA weights inside the loaded model; touched by the scheduler's thread alone."""

import json
from pathlib import Path

import torch
from peft import PeftModel

from windlass_agent.engines.builtin.errors import ApiError
from windlass_agent.engines.builtin.model import LoadedModel


class AdapterWeights:
    """Adapters by key (a word of ours: PEFT's module names allow no dots)."""

    def __init__(self, model: LoadedModel):
        self._network = model.network
        self._peft: PeftModel | None = None
        self._active: str | None = None

    def attach(self, key: str, path: Path) -> None:
        """Loads an adapter beside the others; raises ApiError 400 when it does not fit."""
        try:
            # Not in inference mode: PEFT changes the flags of what it creates.
            with torch.inference_mode(False), torch.no_grad():
                self._attach(key, path)
        except Exception as error:
            self._forget(key)
            message = f"The adapter does not fit this model: {error}"
            raise ApiError(message, param="lora_path", code="invalid_adapter") from error
        finally:
            self._active = ""

    def detach(self, key: str) -> None:
        """Frees an adapter's memory; no sequence may use it."""
        self._forget(key)
        self._active = ""

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
        # Its tensors in the model's own type, as they would be merged.
        if self._peft is None:
            self._peft = PeftModel.from_pretrained(
                self._network, path, adapter_name=key, autocast_adapter_dtype=False
            )
        else:
            self._peft.load_adapter(path, adapter_name=key, autocast_adapter_dtype=False)
        self._peft.eval()

    def _forget(self, key: str) -> None:
        if self._peft is not None and key in self._peft.peft_config:
            with torch.inference_mode(False):
                self._peft.delete_adapter(key)


def check_adapter(path: Path) -> None:
    """Refuses a folder that is no plain LoRA adapter in safetensors; raises ApiError."""
    config_path = path / "adapter_config.json"
    weights_path = path / "adapter_model.safetensors"
    if not (path.is_absolute() and config_path.is_file() and weights_path.is_file()):
        raise ApiError(
            "lora_path has no adapter_config.json and adapter_model.safetensors",
            status=404,
            param="lora_path",
            code="adapter_not_found",
        )
    try:
        config = json.loads(config_path.read_bytes())
    except ValueError as error:
        message = f"adapter_config.json is not JSON: {error}"
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
