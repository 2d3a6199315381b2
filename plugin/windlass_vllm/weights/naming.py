"""Names and shapes of Hugging Face as parts of an engine's parameters."""

from collections.abc import Iterator, Mapping

import msgspec

from windlass_vllm.refusal import Refused
from windlass_vllm.weights.handles import Handle, WeightHandles


class Part(msgspec.Struct, frozen=True):
    """Rows of one of the engine's parameters that are a whole parameter of Hugging Face."""

    handle: str
    first: int
    rows: int


def parts_of(handles: WeightHandles, wanted: Mapping[str, tuple[int, ...]]) -> dict[str, Part]:
    """Returns where each wanted parameter lies, given names and shapes of Hugging Face.

    Raises Refused where one has no place, and where a place of the engine stays unused.
    """
    engines = {one.name: one for one in handles.handles}
    found: dict[str, Part] = {}
    for name, shape in wanted.items():
        renamed = _renamed(name, handles.prefixes)
        if renamed in engines:
            found[name] = _whole(name, shape, engines[renamed])
    packed = dict(_packed(handles, wanted.keys() - found.keys()))
    for fused, names in packed.items():
        if fused not in engines:
            raise Refused("names_differ", f"the engine has no {fused} for {next(iter(names))}")
        found |= _cut(engines[fused], {name: wanted[name] for name in names})
    if missing := sorted(wanted.keys() - found.keys()):
        raise Refused("names_differ", f"the engine has no parameter for {missing[0]}")
    if unused := sorted(engines.keys() - {part.handle for part in found.values()}):
        raise Refused("names_differ", f"Hugging Face has no parameter for {unused[0]}")
    return found


def _renamed(name: str, prefixes: Mapping[str, str]) -> str:
    for prefix, other in prefixes.items():
        if name.startswith(prefix):
            return other + name.removeprefix(prefix)
    return name


def _whole(name: str, shape: tuple[int, ...], handle: Handle) -> Part:
    if (handle.rows, *handle.shape[1:]) != shape:
        message = f"{name} is {shape}, and {(handle.rows, *handle.shape[1:])} in the engine"
        raise Refused("shapes_differ", message)
    return Part(handle.name, 0, handle.rows)


def _packed(handles: WeightHandles, names: set[str]) -> Iterator[tuple[str, list[str]]]:
    """Yields fused names with the names that are packed in them, in the order of their rows."""
    found: dict[str, dict[int, str]] = {}
    for name in names:
        padded = f".{_renamed(name, handles.prefixes)}"
        for fused, inner in handles.packed.items():
            for order, part in enumerate(inner):
                if f".{part}." in padded:
                    whole = padded.replace(f".{part}.", f".{fused}.", 1)[1:]
                    found.setdefault(whole, {})[order] = name
    for fused, ordered in found.items():
        yield fused, [ordered[order] for order in sorted(ordered)]


def _cut(handle: Handle, inner: Mapping[str, tuple[int, ...]]) -> dict[str, Part]:
    """Cuts a fused parameter where the engine's module says that one part ends."""
    found, first = {}, 0
    for name, shape in inner.items():
        found[name] = Part(handle.name, first, shape[0])
        first += shape[0]
        if shape[1:] != handle.shape[1:] or first not in handle.cuts:
            message = f"{name} of {shape} is no part of {handle.name} of {handle.shape}"
            raise Refused("shapes_differ", message)
    if first != handle.rows:
        raise Refused("shapes_differ", f"the parts of {handle.name} have {first} rows in all")
    return found
