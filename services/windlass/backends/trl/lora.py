"""Settings of `TRLPeftConfig` in requests and in job documents, in one list."""

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from typing import TYPE_CHECKING, Any, get_type_hints

import msgspec
from msgspec import Struct

from windlass.backends.adapters import AdapterShape
from windlass.backends.backend import InvalidConfig
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


def continued(shape: AdapterShape, asked: Mapping[str, Any], *, at: str) -> Lora:
    """Returns an adapter that can begin as one of a shape: with what is `asked`, else as that.

    Raises InvalidConfig, with the request's name of a setting, for one that cannot hold it.
    """
    settings: dict[str, Any] = {
        "rank": shape.r,
        "alpha": shape.lora_alpha,
        "target_modules": shape.target_modules,
        "use_rslora": shape.use_rslora,
        "use_dora": shape.use_dora,
        **asked,
    }
    if settings["rank"] < shape.r:
        raise InvalidConfig(f"{at}.rank", f"must be {shape.r} or more, as in the job's model")
    if settings["use_dora"] != shape.use_dora:
        needed = str(shape.use_dora).lower()
        raise InvalidConfig(f"{at}.use_dora", f"must be {needed}, as in the job's model")
    wanted = settings["target_modules"]
    if wanted != "all-linear" and (missing := set(shape.target_modules) - set(wanted)):
        names = ", ".join(sorted(missing))
        raise InvalidConfig(f"{at}.target_modules", f"must include {names}, as in the job's model")
    return Lora(**{REQUEST_NAMES[name]: value for name, value in settings.items()})
