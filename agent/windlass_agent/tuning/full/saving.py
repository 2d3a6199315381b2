"""States and weights of runs of all parameters, to files and back.

All processes of a run hand over their rows, tensor by tensor; the leader alone writes.
"""

import shutil
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from windlass_agent.tuning.full.files import ModelFiles, OtherTensors
from windlass_agent.tuning.full.run import FullRun
from windlass_agent.tuning.full.tensors import Shape, sharded, write_tensors
from windlass_agent.tuning.network.adapter import Tensors
from windlass_agent.tuning.optimizers.adamw import MEAN, SQUARE
from windlass_agent.tuning.requests.operations import FolderResult, ReadState
from windlass_agent.tuning.requests.refusal import TuningRefused
from windlass_agent.tuning.state.folders import digest, new_folder, size
from windlass_agent.tuning.state.manifest import (
    FORMAT,
    NAME,
    StateManifest,
    describe,
    read_manifest,
    write_manifest,
)
from windlass_agent.tuning.state.saving import GENERATOR, GRADIENTS, OPTIMIZER, WEIGHTS

_FLOAT = torch.float32


def save_run(folder: Path, run: FullRun) -> FolderResult:
    """Writes a state into a new folder, the manifest last; raises TuningRefused."""
    held = {WEIGHTS: run.weights, OPTIMIZER: run.moments, GRADIENTS: run.gradients}
    # The same bytes for the same run, whichever way that came about.
    parts = {part: dict(sorted(tensors.items())) for part, tensors in held.items()}
    tensors = _gathered(run, parts)
    found = None
    try:
        if run.network.ranks.leads:
            with new_folder(folder) as draft:
                for part, named in parts.items():
                    _write_part(draft, part, _shapes(run, named), tensors)
                save_file({GENERATOR: run.generator}, draft / _file(GENERATOR, 0))
                found = write_manifest(draft, _manifest(run, draft))
    finally:
        # Whatever became of the writing, the others hand over all that they have.
        deque(tensors, maxlen=0)
    return FolderResult(size=size(folder) if found else 0, digest=found or "")


def export_run(folder: Path, run: FullRun, files: ModelFiles) -> FolderResult:
    """Writes the model as its base lies there: its files, names and types; raises TuningRefused."""
    aliases = _aliases(run)
    names = [name for held in files.tensors.values() for name in held]
    weights = run.weights
    tensors = (run.network.whole(aliases[name], weights[aliases[name]]) for name in names)
    try:
        if run.network.ranks.leads:
            with new_folder(folder) as draft:
                for name in files.documents:
                    shutil.copyfile(files.folder / name, draft / name)
                for file, dtypes in files.tensors.items():
                    shapes = {name: run.network.shapes[aliases[name]] for name in dtypes}
                    write_tensors(draft / file, shapes, dtypes, tensors)
    finally:
        deque(tensors, maxlen=0)
    return FolderResult(size=size(folder) if run.network.ranks.leads else 0, digest="")


def read_run(operation: ReadState, run: FullRun) -> FolderResult:
    """Goes on from a state, or from a model's weights; raises TuningRefused, nothing changed.

    Every process reads its own rows.
    """
    folder = operation.folder
    if (folder / NAME).is_file():
        found = _read_state(folder, run, with_optimizer=operation.optimizer)
    else:
        _read_model(folder, run)
        run.forget()
        found = ""
    return FolderResult(size=size(folder), digest=found, was_read=True)


def _read_state(folder: Path, run: FullRun, *, with_optimizer: bool) -> str:
    """Reads what the manifest vouches for; returns its digest."""
    present = {path.name for path in folder.iterdir()} - {NAME}
    manifest = read_manifest(folder, present)
    if manifest.base != run.network.base.identity:
        raise TuningRefused("foreign_base", "the state is of another base model")
    if manifest.rank != 0:
        raise TuningRefused("other_shape", "the state is one of an adapter")
    shapes = dict(run.network.shapes)
    moments = {f"{name}.{part}": shape for name, shape in shapes.items() for part in (MEAN, SQUARE)}
    places = {part: _places(folder, present, part) for part in (WEIGHTS, OPTIMIZER, GRADIENTS)}
    _check(places[WEIGHTS], shapes, folder, all_of_them=True)
    _check(places[OPTIMIZER], moments, folder, all_of_them=False)
    _check(places[GRADIENTS], shapes, folder, all_of_them=False)
    generator = load_file(folder / _file(GENERATOR, 0)).get(GENERATOR)
    if generator is None or generator.dtype != torch.uint8:
        raise TuningRefused("damaged_state", "it has no generator")
    weights = run.weights
    for name, tensor in _rows(folder, run, places[WEIGHTS]):
        weights[name].copy_(tensor)
    run.forget()
    if with_optimizer:
        run.moments = dict(_rows(folder, run, places[OPTIMIZER]))
        run.take_gradients(dict(_rows(folder, run, places[GRADIENTS])))
        run.steps, run.generator = manifest.step, generator
    return digest(folder / NAME)


def _read_model(folder: Path, run: FullRun) -> None:
    try:
        files = ModelFiles.of(folder, run.network.network)
    except (OtherTensors, OSError) as error:
        raise TuningRefused("damaged_state", f"the weights cannot be read: {error}") from error
    aliases, weights = _aliases(run), run.weights
    places = {aliases[name]: (file, name) for file, held in files.tensors.items() for name in held}
    for name, (file, alias) in places.items():
        with safe_open(folder / file, "pt") as opened:
            tensor = opened.get_slice(alias)[run.network.rows(name)]
        weights[name].copy_(tensor)


def _manifest(run: FullRun, draft: Path) -> StateManifest:
    return StateManifest(
        format=FORMAT,
        base=run.network.base.identity,
        rank=0,
        alpha=0.0,
        seed=run.seed,
        targets=[],
        optimizer="adamw",
        step=run.steps,
        files=describe(draft),
    )


def _file(part: str, number: int) -> str:
    return f"{part}-{number:05d}.safetensors"


def _write_part(
    draft: Path, part: str, shapes: Mapping[str, Shape], tensors: Iterator[torch.Tensor]
) -> None:
    for number, held in enumerate(sharded(shapes, _FLOAT.itemsize)):
        write_tensors(draft / _file(part, number), held, dict.fromkeys(held, _FLOAT), tensors)


def _gathered(run: FullRun, parts: Mapping[str, Tensors]) -> Iterator[torch.Tensor]:
    for held in parts.values():
        for name, tensor in held.items():
            yield run.network.whole(_parameter(run, name), tensor)


def _shapes(run: FullRun, held: Tensors) -> dict[str, Shape]:
    return {name: run.network.shapes[_parameter(run, name)] for name in held}


def _parameter(run: FullRun, name: str) -> str:
    """The parameter that a tensor of this name belongs to."""
    return name if name in run.network.shapes else name.rpartition(".")[0]


def _aliases(run: FullRun) -> dict[str, str]:
    """The name of each parameter by all of its names."""
    first: dict[int, str] = {}
    found = {}
    for name, parameter in run.network.network.named_parameters(remove_duplicate=False):
        found[name] = first.setdefault(id(parameter), name)
    return found


def _places(folder: Path, present: set[str], part: str) -> dict[str, str]:
    """The file of each tensor of a part."""
    found: dict[str, str] = {}
    try:
        for file in sorted(name for name in present if name.startswith(f"{part}-")):
            with safe_open(folder / file, "pt") as opened:
                found |= dict.fromkeys(opened.keys(), file)
    except (OSError, SafetensorError) as error:
        raise TuningRefused("damaged_state", f"its tensors cannot be read: {error}") from error
    return found


def _check(
    places: Mapping[str, str], expected: Mapping[str, Shape], folder: Path, *, all_of_them: bool
) -> None:
    if all_of_them and places.keys() != expected.keys():
        raise TuningRefused("damaged_state", "its tensors are not those of the model")
    for name, file in places.items():
        with safe_open(folder / file, "pt") as opened:
            found = opened.get_slice(name)
            if tuple(found.get_shape()) != expected.get(name) or found.get_dtype() != "F32":
                raise TuningRefused("damaged_state", "its tensors are not those of the model")


def _rows(
    folder: Path, run: FullRun, places: Mapping[str, str]
) -> Iterator[tuple[str, torch.Tensor]]:
    for name, file in places.items():
        with safe_open(folder / file, "pt") as opened:
            tensor = opened.get_slice(name)[run.network.rows(_parameter(run, name))]
        # A copy: the file goes.
        yield name, tensor.clone().to(run.network.base.device)
