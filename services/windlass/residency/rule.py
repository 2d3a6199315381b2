"""The rule of residency, and how geographies are written. Pure.

A geography is two capital letters, as OpenAI names them: `US`, `EU`, `JP`. Projects have one from
their creation or none; an operator labels clusters with one, and says that of the stores.
"""

import re
from collections.abc import Mapping

from windlass.bounds import GEOGRAPHY_PATTERN
from windlass.core.errors import FailedPrecondition, InvalidArgument

# Why a cluster or a store is refused, or what runs there ends.
MISMATCH = "geography_mismatch"
# That of a workload's end in a cluster that got another label, as statuses have it.
MOVED = "GeographyChanged"
# OpenAI's words for it: of no geography, and of one where data both lie and are processed.
_ANYWHERE = "GLOBAL"
_THERE = "_STORAGE_PROCESSING"
# By the settings that say where they are.
_STORES = {"residency.objects": "object store", "residency.database": "database"}


def admits(label: str, geography: str) -> bool:
    """Returns True if what has a label may have what a project of a geography has.

    One without a geography goes anywhere; nothing without a label has one with it.
    """
    return not geography or label == geography


def checked(geography: str, param: str = "geography") -> str:
    """Returns a geography, or the empty one; raises InvalidArgument for what is none."""
    if geography and not re.fullmatch(GEOGRAPHY_PATTERN, geography):
        raise InvalidArgument(
            f"{param} must be two capital letters, such as US, EU or JP.", param=param
        )
    return geography


def require_stores(geography: str, stores: Mapping[str, str]) -> None:
    """Raises FailedPrecondition for a geography that one of the installation's stores is not in.

    Stores are given by the settings that say where they are.
    """
    for setting, label in stores.items():
        if not admits(label, geography):
            there = f"is in {label}" if label else "is in no geography that its operator named"
            raise FailedPrecondition(
                f"This installation does not keep data in {geography}: its {_STORES[setting]} "
                f"{there} ({setting}).",
                reason="geography_mismatch",
                param="geography",
            )


def require_cluster(label: str, geography: str, *, cluster: str, param: str) -> None:
    """Raises FailedPrecondition for a cluster that may have nothing of a project."""
    if not admits(label, geography):
        where = f"is labelled {label}" if label else "has no label"
        raise FailedPrecondition(
            f"The project's data stays in {geography}, and the cluster {cluster} {where}; "
            f"`windlass clusters update --geography` labels one.",
            reason="geography_mismatch",
            param=param,
        )


def require_receiver(label: str, geography: str) -> None:
    """Raises FailedPrecondition for a project that may not use what another one has.

    Both are geographies, of the project that receives and of the one that gives.
    """
    if not admits(label, geography):
        where = f"stays in {label}" if label else "may be anywhere"
        raise FailedPrecondition(
            f"The model's project has its data in {geography}, and what the other project has "
            f"{where}.",
            reason="geography_mismatch",
            param="project_ids",
        )


def of_residency(residency: str) -> str:
    """The geography of a word of OpenAI's, empty for `GLOBAL`; raises InvalidArgument."""
    if residency == _ANYWHERE:
        return ""
    geography = residency.removesuffix(_THERE)
    if geography == residency or not re.fullmatch(GEOGRAPHY_PATTERN, geography):
        raise InvalidArgument(
            f"residency must be {_ANYWHERE} or such as EU{_THERE}: what is stored in a geography "
            "is processed there too.",
            reason="unsupported_parameter",
            param="residency",
        )
    return geography


def as_residency(geography: str) -> str | None:
    """The word of OpenAI's for a geography, or one made like it; None for none."""
    return f"{geography}{_THERE}" if geography else None
