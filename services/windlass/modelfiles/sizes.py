"""Bounds on what a document makes its loader allocate, known before anything is loaded."""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from windlass.modelfiles.refusal import RefusedDocument

# Of a document but tokenizer.json. Indexes of the largest models have 300,000.
_VALUES = 1_000_000
# By the commas in each part, of which a token has one to seven.
_TOKENIZER_COMMAS = {"vocab": 2**21, "merges": 2**22, "added_tokens": 2**20}
_NUMBER_KEY = re.compile(
    r"(.*_)?(size|dim|dims|layers?|heads?|experts?|width|rank|features|channels|embd|inner)"
    r"|[nd]_\w+|num_(?!param)\w+|dim"
)
_MAX_SIZE = 2**20
_LAYERS = re.compile(r"(.*_)?layers?")
_MAX_LAYERS = 2000
# Smaller matrices do no harm, whatever the weights are.
_FREE_ELEMENTS = 2**24
# Of weights in 4 bits.
_ELEMENTS_A_BYTE = 2
_NAMES = {
    "vocabulary": ("vocab_size",),
    "width": ("hidden_size", "d_model", "n_embd", "dim"),
    "inner": ("intermediate_size", "ffn_dim", "n_inner", "d_ff"),
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "heads": ("num_attention_heads", "n_head"),
    "head": ("head_dim",),
    "experts": ("num_experts", "num_local_experts", "n_routed_experts"),
    "expert": ("moe_intermediate_size", "intermediate_size"),
}
# Each is a matrix, or a row of them, that the weights have to hold.
_MATRICES = (
    ("vocabulary", "width"),
    ("width", "inner"),
    ("width", "width", "layers"),
    ("width", "heads", "head"),
    ("width", "expert", "experts"),
)


def refuse_many_values(path: str, content: bytes) -> None:
    """Raises RefusedDocument for a document that takes far more memory when it is read."""
    if sum(map(content.count, (b",", b"[", b"{"))) > _VALUES:
        raise RefusedDocument(f"{path!r} has more than {_VALUES:,} values.")


def refuse_many_tokens(path: str, parts: Mapping[str, bytes]) -> None:
    """Raises RefusedDocument for a tokenizer whose loader would take gigabytes."""
    for key, content in parts.items():
        if content.count(b",") > _TOKENIZER_COMMAS[key]:
            raise RefusedDocument(
                f"{path!r} has more {key!r} than a tokenizer may have, about a million tokens."
            )


def refuse_declared_sizes(path: str, document: Any, weights: int) -> None:
    """Raises RefusedDocument for a model that declares more than `weights` bytes can hold.

    Its loader would make what is missing, however large.
    """
    max_elements = max(_FREE_ELEMENTS, weights * _ELEMENTS_A_BYTE)
    for part in _objects(document):
        for key, value in part.items():
            limit = _MAX_LAYERS if _LAYERS.fullmatch(key) else _MAX_SIZE
            if _NUMBER_KEY.fullmatch(key) and _is_count(value) and value > limit:
                raise RefusedDocument(
                    f"{path!r} has {str(value)[:20]} as {key!r}; at most {limit} is possible.",
                    reason="invalid_config",
                )
        for kinds in _MATRICES:
            found = [_first(part, kind) for kind in kinds]
            if math.prod(value for _, value in found) > max_elements:
                declared = " x ".join(dict.fromkeys(f"{key}={value}" for key, value in found))
                raise RefusedDocument(
                    f"{path!r} declares {declared}, which is more than the weights of the model "
                    "hold.",
                    reason="invalid_config",
                )


def _first(part: Mapping[str, Any], kind: str) -> tuple[str, int]:
    """The number of that kind under the name that it has here; 0 where it has none."""
    named = [(key, part[key]) for key in _NAMES[kind] if _is_count(part.get(key))]
    return named[0] if named else ("", 0)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _objects(document: Any) -> Iterator[dict[str, Any]]:
    pending = [document]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            yield value
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)
