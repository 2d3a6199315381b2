"""States of runs, to files and back."""

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from windlass_agent.tuning.network.adapter import LayerShape, Tensors, shapes
from windlass_agent.tuning.requests.refusal import TuningRefused
from windlass_agent.tuning.state.folders import digest, new_folder
from windlass_agent.tuning.state.manifest import (
    FORMAT,
    NAME,
    StateManifest,
    describe,
    read_manifest,
    write_manifest,
)
from windlass_agent.tuning.state.record import RunState

WEIGHTS, OPTIMIZER, GRADIENTS = "weights", "optimizer", "gradients"
GENERATOR = "generator"
_FILES = {f"{part}.safetensors" for part in (WEIGHTS, OPTIMIZER, GRADIENTS, GENERATOR)}


def save_state(folder: Path, state: RunState, base: str) -> str:
    """Writes a state into a new folder, the manifest last; returns the manifest's digest."""
    with new_folder(folder) as draft:
        parts = {
            WEIGHTS: state.weights,
            OPTIMIZER: state.moments,
            GRADIENTS: state.gradients,
            GENERATOR: {GENERATOR: state.generator},
        }
        for part, tensors in parts.items():
            kept = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
            save_file(kept, draft / f"{part}.safetensors")
        spec = state.adapter
        manifest = StateManifest(
            format=FORMAT,
            base=base,
            rank=spec.rank,
            alpha=spec.alpha,
            seed=spec.seed,
            targets=sorted(spec.targets),
            optimizer=state.optimizer,
            step=state.step,
            files=describe(draft),
        )
        return write_manifest(draft, manifest)


def load_state(
    folder: Path, base: str, layers: Sequence[LayerShape], device: torch.device
) -> tuple[RunState, str]:
    """Reads a state of this base, and its manifest's digest; raises TuningRefused."""
    manifest = read_manifest(folder, _FILES)
    if manifest.base != base:
        raise TuningRefused("foreign_base", "the state is of another base model")
    expected = shapes(manifest.adapter, layers)
    try:
        parts = {
            part: load_file(folder / f"{part}.safetensors")
            for part in (WEIGHTS, OPTIMIZER, GRADIENTS, GENERATOR)
        }
    except (OSError, SafetensorError) as error:
        raise TuningRefused("damaged_state", f"its tensors cannot be read: {error}") from error
    _check(parts[WEIGHTS], expected)
    if parts[GRADIENTS]:
        _check(parts[GRADIENTS], expected)
    _check_moments(parts[OPTIMIZER], expected)
    generator = parts[GENERATOR].get(GENERATOR)
    if generator is None or generator.dtype != torch.uint8:
        raise TuningRefused("damaged_state", "it has no generator")
    state = RunState(
        adapter=manifest.adapter,
        optimizer=manifest.optimizer,
        weights=parts[WEIGHTS],
        moments=parts[OPTIMIZER],
        gradients=parts[GRADIENTS],
        step=manifest.step,
        generator=generator,
    )
    return state.moved(device), digest(folder / NAME)


def _check(tensors: Tensors, expected: dict[str, tuple[int, int]]) -> None:
    if {name: tuple(tensor.shape) for name, tensor in tensors.items()} != expected:
        raise TuningRefused("damaged_state", "its tensors are not those of its adapter")
    if any(tensor.dtype != torch.float32 for tensor in tensors.values()):
        raise TuningRefused("damaged_state", "its tensors are not float32")


def _check_moments(moments: Tensors, expected: dict[str, tuple[int, int]]) -> None:
    for name, tensor in moments.items():
        if expected.get(name.rpartition(".")[0]) != tuple(tensor.shape):
            raise TuningRefused("damaged_state", "its moments are not those of its adapter")
