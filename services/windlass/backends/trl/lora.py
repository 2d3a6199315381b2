"""Settings of `TRLPeftConfig` in requests and in job documents, in one list."""

from dataclasses import MISSING, Field, fields
from typing import TYPE_CHECKING, Any, get_type_hints

import msgspec
from msgspec import Struct

from windlass.backends.trl.methods import TRLPeftConfig

_HINTS = get_type_hints(TRLPeftConfig, include_extras=True)


def document_name(setting: Field[Any]) -> str:
    """The setting's name in a job's document."""
    return setting.name.removeprefix("lora_")


def request_name(setting: Field[Any]) -> str:
    """The setting's name in `windlass.config`."""
    return str(setting.metadata.get("asked", document_name(setting)))


# The document's names and the request's, by those of `TRLPeftConfig`.
DOCUMENT_NAMES = {document_name(setting): setting.name for setting in fields(TRLPeftConfig)}
REQUEST_NAMES = {request_name(setting): document_name(setting) for setting in fields(TRLPeftConfig)}
# Those that a release of before does not know, with their defaults: documents hold them if set.
LATER = {
    document_name(setting): setting.default
    for setting in fields(TRLPeftConfig)
    if setting.metadata.get("later")
}

if TYPE_CHECKING:
    Lora = Struct
    LoraSettings = Struct
else:
    Lora = msgspec.defstruct(
        "Lora",
        [
            (
                document_name(setting),
                _HINTS[setting.name],
                # Of a job, not of Kubeflow's proposal.
                "all-linear" if setting.default is MISSING else setting.default,
            )
            for setting in fields(TRLPeftConfig)
        ],
        frozen=True,
        forbid_unknown_fields=True,
        module=__name__,
        namespace={"__doc__": "A low-rank adapter in place of full fine-tuning."},
    )
    LoraSettings = msgspec.defstruct(
        "LoraSettings",
        [
            (request_name(setting), _HINTS[setting.name] | None, None)
            for setting in fields(TRLPeftConfig)
        ],
        frozen=True,
        forbid_unknown_fields=True,
        module=__name__,
        namespace={"__doc__": "Settings of an adapter; what is left out keeps its default."},
    )
