"""State of an optimizer, to one file of safetensors and back."""

import os
from pathlib import Path

import msgspec
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from windlass_vllm.optimizers.in_backward import InBackwardOptimizer
from windlass_vllm.optimizers.rounding import RESIDUAL
from windlass_vllm.optimizers.rules import MEAN, NORM, SQUARE, WeightState
from windlass_vllm.optimizers.settings import OptimizerSettings
from windlass_vllm.refusal import Refused

_FORMAT = 1
_KEY = "windlass"
_PARTS = {MEAN, SQUARE, NORM, RESIDUAL}


class _Weight(msgspec.Struct, forbid_unknown_fields=True):
    shape: list[int]
    seed: int
    low_rank: bool
    step: int


class _SavedState(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    format: int
    version: str
    device: str
    settings: OptimizerSettings
    weights: dict[str, _Weight]


def save_state(path: Path, optimizer: InBackwardOptimizer, version: str) -> None:
    """Writes a state with the version of the weights that it belongs to, whole or not at all."""
    weights = {
        name: _Weight(list(optimizer.weights[name].shape), one.seed, one.low_rank, one.step)
        for name, one in optimizer.states.items()
    }
    words = _SavedState(
        format=_FORMAT,
        version=version,
        device=_device(optimizer),
        settings=optimizer.settings,
        weights=weights,
    )
    tensors = {
        f"{name}.{part}": tensor.cpu().contiguous()
        for name, state in optimizer.states.items()
        for part, tensor in state.tensors.items()
    }
    content = save(tensors, metadata={_KEY: msgspec.json.encode(words).decode()})
    draft = path.with_name(f".{path.name}.next")
    try:
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(path)
        folder = os.open(path.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise Refused("not_written", f"{path.name} cannot be written: {error}") from error


def load_state(path: Path, optimizer: InBackwardOptimizer, version: str) -> None:
    """Puts a saved state into an optimizer of the same weights and settings; raises Refused.

    The learning rate is the optimizer's. Random numbers of a CPU and a GPU differ, so that a state
    goes on where it was made.
    """
    words, tensors = _read(path)
    mine = {name: list(weight.shape) for name, weight in optimizer.weights.items()}
    if words.version != version:
        raise Refused("state_foreign", f"the state is of version {words.version}, not {version}")
    if {name: one.shape for name, one in words.weights.items()} != mine:
        raise Refused("state_foreign", "the state is of other weights")
    rate = optimizer.settings.learning_rate
    if msgspec.structs.replace(words.settings, learning_rate=rate) != optimizer.settings:
        raise Refused("state_foreign", "the state is of other settings")
    if words.device != _device(optimizer):
        raise Refused("state_foreign", f"the state was made on {words.device}")
    states = {name: _state(name, one, optimizer, tensors) for name, one in words.weights.items()}
    if tensors:
        raise Refused("state_damaged", f"{next(iter(tensors))} is of no weight")
    optimizer.states = states


def _read(path: Path) -> tuple[_SavedState, dict[str, torch.Tensor]]:
    try:
        with safe_open(path, framework="pt") as file:
            written = (file.metadata() or {}).get(_KEY, "")
            words = msgspec.json.decode(written, type=_SavedState)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, msgspec.MsgspecError, Refused) as error:
        raise Refused("state_damaged", f"the state cannot be read: {error}") from error
    if words.format != _FORMAT:
        raise Refused("state_damaged", f"the state has format {words.format}")
    return words, tensors


def _state(
    name: str,
    saved: _Weight,
    optimizer: InBackwardOptimizer,
    tensors: dict[str, torch.Tensor],
) -> WeightState:
    weight, fresh = optimizer.weights[name], optimizer.states[name]
    if saved.low_rank != fresh.low_rank or not saved.step >= 0 or not 0 <= saved.seed < 2**63:
        raise Refused("state_damaged", f"the words on {name} are not those of a state")
    found = {part: tensors.pop(f"{name}.{part}") for part in _PARTS if f"{name}.{part}" in tensors}
    expected = _shapes(saved, weight, optimizer.settings)
    if {part: (tuple(one.shape), one.dtype) for part, one in found.items()} != expected:
        raise Refused("state_damaged", f"the tensors of {name} are not those of its settings")
    if not all(one.isfinite().all() for one in found.values()):
        raise Refused("state_damaged", f"the state of {name} has no finite numbers")
    kept = {part: one.to(weight.device) for part, one in found.items()}
    return WeightState(saved.seed, saved.low_rank, saved.step, kept)


def _shapes(
    saved: _Weight, weight: torch.Tensor, settings: OptimizerSettings
) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    """The tensors that a weight's state has after its steps."""
    if not saved.step:
        return {}
    shape: tuple[int, ...] = tuple(weight.shape)
    expected: dict[str, tuple[tuple[int, ...], torch.dtype]] = {}
    if saved.low_rank:
        rows, columns = shape
        shape = (rows, settings.rank) if rows >= columns else (settings.rank, columns)
        expected[NORM] = ((), torch.float32)
    if settings.kind != "sgd":
        expected |= dict.fromkeys((MEAN, SQUARE), (shape, torch.float32))
    if settings.rounding == "kahan" and weight.dtype != torch.float32:
        expected[RESIDUAL] = (tuple(weight.shape), weight.dtype)
    return expected


def _device(optimizer: InBackwardOptimizer) -> str:
    return next((weight.device.type for weight in optimizer.weights.values()), "cpu")
