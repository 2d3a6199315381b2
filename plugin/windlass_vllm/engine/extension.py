"""Methods that vLLM adds to its worker by `--worker-extension-cls`."""

import contextlib
import os
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from windlass_vllm import settings
from windlass_vllm.engine.description import handles_of, packed_of, prefixes_of, refuse_unshareable
from windlass_vllm.refusal import Refused
from windlass_vllm.weights.cuda import share_cuda
from windlass_vllm.weights.handles import CudaShare, WeightHandles, write_handles
from windlass_vllm.weights.private_folder import PrivateFolder
from windlass_vllm.weights.shared_files import place, share

# What a worker takes to end after a signal, by far.
_END_SECONDS = 20


class SharedWeightsWorker:
    """A worker whose parameters another process may open; vLLM mixes it into its own class."""

    vllm_config: Any
    _windlass_shared: dict[str, int] | None = None

    if TYPE_CHECKING:

        def get_model(self) -> torch.nn.Module:
            """Returns the engine's model."""

    def windlass_share(self, folder: str, generation: int, key: bytes) -> dict[str, Any]:
        """Shares all parameters in a folder under a generation, and says how, or why not."""
        try:
            if not settings.is_named():
                raise Refused("not_named", f"VLLM_PLUGINS does not name {settings.PLUGIN}")
            return self._windlass_share(Path(folder), generation, key)
        except Refused as error:
            return {"reason": error.reason, "message": str(error)}

    def windlass_is_shared(self) -> bool:
        """Returns whether the parameters still are where they were shared."""
        return self._windlass_shared == _addresses(self.get_model())

    def _windlass_share(self, path: Path, generation: int, key: bytes) -> dict[str, Any]:
        model, config = self.get_model(), self.vllm_config
        refuse_unshareable(config, model)
        parameters = dict(model.named_parameters())
        device = next(iter(parameters.values())).device
        sizes = {name: one.numel() * one.element_size() for name, one in parameters.items()}
        folder = PrivateFolder(path)
        shares: tuple[CudaShare, ...] = ()
        try:
            if device.type == "cpu":
                offsets, size = place(sizes)
                share(folder, parameters, offsets, size)
            else:
                shares, size = share_cuda(parameters.values()), sum(sizes.values())
                offsets = {
                    name: one.storage_offset() * one.element_size()
                    for name, one in parameters.items()
                }
            handles = WeightHandles(
                generation=generation,
                device=device.type,
                size=size,
                context=config.model_config.max_model_len,
                config=config.model_config.hf_config.to_json_string(use_diff=False),
                packed=packed_of(model),
                prefixes=prefixes_of(model),
                handles=tuple(handles_of(model, offsets)),
                shares=shares,
            )
            write_handles(folder, handles, key)
        finally:
            folder.close()
        if self._windlass_shared is None:
            threading.Thread(target=_end_with_maker, args=(path,), daemon=True).start()
        self._windlass_shared = _addresses(model)
        return {"generation": generation, "size": size, "device": device.type}


def _end_with_maker(path: Path) -> None:
    """Ends this worker, and so its engine, once the API server was killed.

    vLLM's engine outlives a killed API server, and holds its memory for nobody.
    """
    with contextlib.suppress(Refused, OSError):
        folder = PrivateFolder(path)
        try:
            if not folder.outlived():
                return
        finally:
            folder.close()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_END_SECONDS)
        os.kill(os.getpid(), signal.SIGKILL)


def _addresses(model: torch.nn.Module) -> dict[str, int]:
    return {name: one.data_ptr() for name, one in model.named_parameters()}
