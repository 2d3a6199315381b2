"""Reads what a cross-encoder makes of its network's value, as vLLM reads it too.

Sources: transformers' `problem_type`; sentence-transformers' `activation_fn` within
`sentence_transformers`, and the key of its older releases.
"""

from collections.abc import Mapping
from typing import Any, Literal

from windlass.modelfiles.refusal import RefusedDocument

Activation = Literal["none", "sigmoid"]
# Engines import what the name says, so that no other passes.
_KNOWN: Mapping[object, Activation] = {
    "torch.nn.modules.linear.Identity": "none",
    "torch.nn.modules.activation.Sigmoid": "sigmoid",
    None: "sigmoid",
}
_OLDER = "sbert_ce_default_activation_function"


def activation_of(config: Mapping[str, Any]) -> Activation:
    """Returns the activation of a classifier's config.json; raises RefusedDocument for another."""
    newer = config.get("sentence_transformers")
    if newer is not None and not isinstance(newer, dict):
        raise _refused("sentence_transformers", newer)
    if newer and "activation_fn" in newer:
        where, name = "sentence_transformers.activation_fn", newer["activation_fn"]
    else:
        where, name = _OLDER, config.get(_OLDER)
    if not isinstance(name, str | None) or name not in _KNOWN:
        raise _refused(where, name)
    known = config.get("problem_type")
    if known is None:
        return _KNOWN[name]
    return "none" if known == "regression" else "sigmoid"


def _refused(where: str, name: object) -> RefusedDocument:
    known = " or ".join(str(one) for one in _KNOWN if one)
    return RefusedDocument(
        f"config.json has {where} {str(name)[:80]!r}; known are {known}.", reason="invalid_config"
    )
