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
# Of the document of a step; those of models have some hundred bytes.
STEP_BYTES = 64 * 1024
_STEP = re.compile(r"[0-9]{1,2}_[A-Za-z]{1,32}")
_MOST_STEPS = 16
# Steps in the one order that engines have: T, P, D and N are their beginnings.
_ORDER = re.compile(r"T?PD*N?|T")
_WEIGHTS = "model.safetensors"
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


def is_step(path: str) -> bool:
    """Returns True for the document of a step."""
    folder, _, name = path.rpartition("/")
    return name.lower() == "config.json" and bool(_STEP.fullmatch(folder))


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
    names = architectures_of(config)
    return PLAIN if names and all(map(_HEADLESS.fullmatch, names)) else None


def architectures_of(config: Mapping[str, Any]) -> list[str]:
    """The architectures that a config.json names; none where it is no list of names."""
    found = config.get("architectures")
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []


def is_classifier(config: Mapping[str, Any]) -> bool:
    """Returns True for a config.json of a sequence classifier."""
    return any(name.endswith("ForSequenceClassification") for name in architectures_of(config))


def generates(config: Mapping[str, Any], files: Mapping[str, Path]) -> bool:
    """Returns True for a model that writes; raises RefusedDocument as `pooling_of` does."""
    if is_classifier(config):
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
    if len(modules) > _MOST_STEPS:
        raise RefusedDocument(f"{MODULES} has more than {_MOST_STEPS} steps.")
    _check_order([module.type for module in modules])
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


def _check_order(types: list[str]) -> None:
    kinds = "".join(found[2][0] if (found := _CLASS.fullmatch(one)) else "?" for one in types)
    if "?" not in kinds and not _ORDER.fullmatch(kinds):
        raise RefusedDocument(
            f"{MODULES} has its steps in another order than Transformer, Pooling, Dense (any "
            "number), Normalize (or none).",
            reason="unsupported_module",
        )


def _check_folder(kind: str, path: str) -> None:
    if kind == "Transformer":
        raise RefusedDocument(
            f"{MODULES} has the network in {path[:80]!r}; it must be in the model's own folder.",
            reason="unsupported_module",
        )
    if not _STEP.fullmatch(path):
        raise RefusedDocument(
            f"{MODULES} names {path[:80]!r}, which is not a folder such as '1_Pooling'.",
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
