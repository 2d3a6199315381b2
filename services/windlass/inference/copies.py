"""Adapters with engines of their own: merged copies of what others do not load, and dedicated ones.

Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from windlass.engine_arguments import ADAPTER_RANK, UNCHOSEN, EngineArguments, completed
from windlass.inference.domain import Engine, Name, Serving
from windlass.modelfiles.adapter_traits import refusal

# The kinds whose engines have a highest rank.
_TRAINED = "their base is trained while it serves, and would move under it"
_BOUND_RANK = frozenset({"sglang", "vllm"})


def with_copies(
    names: Mapping[str, Name], servings: Sequence[Serving], engine: str
) -> dict[str, Name]:
    """The names, with engines of their own for adapters that are dedicated or merged copies.

    `engine` is the kind of the engines whose serving names none.
    """
    settings = {one.version_id: one for one in servings}
    found = dict(names)
    for version, name in names.items():
        if not name.is_adapter:
            continue
        serving = settings.get(name.engine_version_id)
        kind = (serving and serving.engine) or engine
        arguments, nodes = (serving.arguments, serving.nodes) if serving else (UNCHOSEN, 0)
        if base_name := names.get(name.engine_version_id):
            # What engines of the base will have: a preset may say the highest rank.
            arguments = completed(arguments, base_name.derived(kind))
        why = _refusal(kind, arguments, nodes, name)
        if serving is not None and serving.training:
            why = _TRAINED
        if why and name.is_merged:
            base = name.engine_version_id
            found[version] = replace(name, engine_version_id=version, base_version_id=base)
        elif why:
            found[version] = replace(name, refused=why)
        elif (own := settings.get(version)) and own.dedicated:
            base = name.engine_version_id
            found[version] = replace(
                name, engine_version_id=version, base_version_id=base, is_dedicated=True
            )
    return found


def why_not_loaded(engine: Engine, name: Name) -> str:
    """Returns why an engine does not load an adapter; empty if it does, or that is not known."""
    if engine.training:
        return _TRAINED
    return _refusal(engine.engine, engine.arguments, engine.nodes, name)


def _refusal(kind: str, arguments: EngineArguments, nodes: int, name: Name) -> str:
    if nodes > 1:
        return "engines on several nodes load none"
    if name.adapter is None:
        return ""
    most = arguments.max_adapter_rank or ADAPTER_RANK if kind in _BOUND_RANK else 0
    return refusal(kind, name.adapter, most)
