"""The files of a model: which of them has which parameter, and how precise."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from windlass.modelfiles import is_data, is_weights, loaded
from windlass_agent.tuning.full.tensors import TYPES, Shape


class OtherTensors(Exception):
    """Files that do not hold the parameters of the model, with the reason."""


@dataclass(frozen=True)
class ModelFiles:
    """A model's folder: the types of its parameters by file, and what is no tensor."""

    folder: Path
    tensors: Mapping[str, Mapping[str, torch.dtype]]
    documents: Sequence[str]

    @classmethod
    def of(cls, folder: Path, network: Any) -> "ModelFiles":
        """The files of this model by their headers; raises OtherTensors.

        A parameter has to lie there under its own name, so that it can be written so again.
        """
        aliases = dict(network.named_parameters(remove_duplicate=False))
        names = sorted(path.name for path in folder.iterdir() if path.is_file())
        tensors: dict[str, dict[str, torch.dtype]] = {}
        try:
            for file in loaded(names):
                with safe_open(folder / file, "pt") as opened:
                    tensors[file] = {
                        name: _dtype(name, opened.get_slice(name), tuple(aliases[name].shape))
                        for name in _names(opened)
                        if name in aliases
                    }
        except (OSError, SafetensorError) as error:
            raise OtherTensors(f"they cannot be read: {error}") from error
        known = {id(aliases[name]) for held in tensors.values() for name in held}
        for name, parameter in aliases.items():
            if id(parameter) not in known:
                raise OtherTensors(f"{name} is not among them by this name")
        documents = [name for name in names if is_data(name) and not is_weights(name)]
        return cls(folder, tensors, documents)


def _names(opened: Any) -> list[str]:
    return list(opened.keys())


def _dtype(name: str, found: Any, shape: Shape) -> torch.dtype:
    word = found.get_dtype()
    if word not in TYPES:
        raise OtherTensors(f"{name} is of the type {word}, which is not trained")
    if tuple(found.get_shape()) != shape:
        raise OtherTensors(f"{name} has another shape")
    return TYPES[word]
