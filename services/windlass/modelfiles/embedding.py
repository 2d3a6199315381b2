"""Reads how a model makes one vector of a text, by the files of sentence-transformers.

`modules.json` names the steps after the network: one that makes a vector of its hidden states,
perhaps layers, perhaps the length one (https://sbert.net/docs/sentence_transformer). A loader
opens the folders that it names, so that only plain names of folders of the model pass.
"""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from windlass.modelfiles.refusal import RefusedDocument

MODULES = "modules.json"
MODULES_BYTES = 64 * 1024
_WEIGHTS = "model.safetensors"
_FOLDER = re.compile(r"[0-9A-Za-z]\w*", re.ASCII)
_CLASS = re.compile(r"sentence_transformers(\.\w+)+\.(Transformer|Pooling|Dense|Normalize)")
# Of each kind of step that makes one vector, the words of older releases and of newer ones.
_MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "last",
    "cls": "cls",
    "mean": "mean",
    "lasttoken": "last",
}
_ACTIVATIONS = {
    "torch.nn.modules.linear.Identity": "none",
    "torch.nn.modules.activation.Tanh": "tanh",
}
# Architectures without a head, whose hidden states are all that they give: not `GPT2LMHeadModel`.
_HEADLESS = re.compile(r"(?!\w*Head)[A-Za-z0-9_]+Model")

# Returns a file of the model by its path.
Read = Callable[[str], bytes]


class DenseLayer(msgspec.Struct, frozen=True):
    """A linear layer on vectors, whose weights are `weight` and perhaps `bias` of a file."""

    file: str
    bias: bool
    activation: Literal["none", "tanh"]


class Pooling(msgspec.Struct, frozen=True):
    """Way to one vector of hidden states: of the first token, all, or the last."""

    mode: Literal["cls", "mean", "last"] = "mean"
    layers: tuple[DenseLayer, ...] = ()
    # Whether vectors have length one.
    normalize: bool = True


class _Module(msgspec.Struct):
    type: str
    path: str = ""


# Of a model without a word on it, as sentence-transformers takes it, but of length one.
PLAIN = Pooling()


def check_modules(content: bytes, known: Collection[str]) -> None:
    """Refuses steps that are unknown, and folders that are none of the model's own.

    Raises RefusedDocument; `known` are the paths of all files of the model.
    """
    for kind, folder in _modules(content):
        needs = {"Pooling": ("config.json",), "Dense": ("config.json", _WEIGHTS)}.get(kind, ())
        for name in needs:
            if f"{folder}/{name}" not in known:
                raise RefusedDocument(
                    f"{MODULES} names '{folder}/{name}', which is missing.",
                    reason="incomplete_model",
                )


def pooling_of(config: Mapping[str, Any], known: Collection[str], read: Read) -> Pooling | None:
    """Returns how a model makes vectors; None for one that is made to do something else.

    `config` is its config.json. Raises RefusedDocument for steps that no engine has.
    """
    if MODULES in known:
        return _read(list(_modules(read(MODULES))), read)
    architectures = [str(name) for name in config.get("architectures") or ()]
    headless = bool(architectures) and all(map(_HEADLESS.fullmatch, architectures))
    return PLAIN if headless else None


def generates(config: Mapping[str, Any], files: Mapping[str, Path]) -> bool:
    """Returns True for a model that writes; raises RefusedDocument as `pooling_of` does."""
    architectures = [str(name) for name in config.get("architectures") or ()]
    if any(name.endswith("ForSequenceClassification") for name in architectures):
        return False
    return pooling_of(config, files, lambda name: files[name].read_bytes()) is None


def _read(modules: list[tuple[str, str]], read: Read) -> Pooling | None:
    mode: Any = None
    layers: list[DenseLayer] = []
    for kind, folder in modules:
        if kind == "Pooling":
            mode = _mode(folder, _object(f"{folder}/config.json", read))
        elif kind == "Dense":
            layers.append(_layer(folder, _object(f"{folder}/config.json", read)))
    if mode is None:
        return None
    normalize = any(kind == "Normalize" for kind, _ in modules)
    return Pooling(mode, tuple(layers), normalize)


def _modules(content: bytes) -> Iterator[tuple[str, str]]:
    """Yields the kind and the folder of each step."""
    if len(content) > MODULES_BYTES:
        raise RefusedDocument(f"{MODULES} is too large to be read.")
    try:
        modules = msgspec.json.decode(content, type=list[_Module])
    except (msgspec.DecodeError, RecursionError) as error:
        raise RefusedDocument(
            f"{MODULES} is no list of modules.", reason="invalid_config"
        ) from error
    for module in modules:
        found = _CLASS.fullmatch(module.type)
        if found is None:
            raise RefusedDocument(
                f"{MODULES} names {module.type[:80]!r}; Transformer, Pooling, Dense and Normalize "
                "of sentence-transformers are known.",
                reason="unsupported_module",
            )
        kind = found[2]
        if module.path or kind in ("Pooling", "Dense"):
            _check_folder(kind, module.path)
        yield kind, module.path


def _check_folder(kind: str, path: str) -> None:
    if kind == "Transformer":
        raise RefusedDocument(
            f"{MODULES} has the network in {path[:80]!r}; it must be in the model's own folder.",
            reason="unsupported_module",
        )
    if not _FOLDER.fullmatch(path):
        raise RefusedDocument(
            f"{MODULES} names {path[:80]!r}, which is not a plain name of a folder.",
            reason="invalid_path",
        )


def _mode(folder: str, config: dict[str, Any]) -> str:
    said = config.get("pooling_mode")
    names = (
        [said]
        if isinstance(said, str)
        else [name for name, value in config.items() if value is True and "pooling_mode" in name]
    )
    modes = [_MODES.get(str(name)) for name in names]
    if len(modes) != 1 or modes[0] is None:
        known = "the first token, the mean and the last token"
        raise RefusedDocument(
            f"'{folder}/config.json' asks for {', '.join(map(str, names))[:200] or 'no vector'}; "
            f"of these there is one, of {known}.",
            reason="unsupported_module",
        )
    return modes[0]


def _layer(folder: str, config: dict[str, Any]) -> DenseLayer:
    said = str(config.get("activation_function"))
    activation: Any = _ACTIVATIONS.get(said)
    if activation is None:
        raise RefusedDocument(
            f"'{folder}/config.json' asks for the activation {said[:80]!r}; the identity and tanh "
            "are known.",
            reason="unsupported_module",
        )
    return DenseLayer(f"{folder}/{_WEIGHTS}", config.get("bias") is not False, activation)


def _object(path: str, read: Read) -> dict[str, Any]:
    document = json.loads(read(path))
    if not isinstance(document, dict):
        raise RefusedDocument(f"{path!r} is not a JSON object.", reason="invalid_config")
    return document
