"""Names and labels that reach a cluster, checked as Kubernetes would; pure.

Each check answers its value, or raises InvalidArgument that names the field.
"""

import re
from collections.abc import Mapping

from windlass.core.errors import InvalidArgument

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
# A subdomain of RFC 1123, no longer than the label that a queue's name becomes on a job.
_NAME = re.compile(r"(?=.{1,63}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_PREFIX = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
)
_WORD = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
# Amounts that Kubernetes knows by a bare name.
_BARE_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage", "pods"})
_RESERVED = re.compile(r"(kube|openshift)-.*|.*-system|default|windlass-agent")
MOST_LABELS = 32


def namespace(value: str, param: str = "namespace") -> str:
    """A namespace that may be a project's: not one of the cluster's own."""
    if not _LABEL.fullmatch(value):
        raise InvalidArgument(
            f"{value[:80]!r} is no namespace: 1 to 63 lower-case letters, digits and dashes.",
            param=param,
        )
    if _RESERVED.fullmatch(value):
        raise InvalidArgument(f"The namespace {value!r} is the cluster's own.", param=param)
    return value


def derived_namespace(project_id: str) -> str:
    """The namespace of a project for which none was given."""
    return "windlass-" + re.sub(r"[^a-z0-9]+", "-", project_id.lower()).strip("-")[:54]


def object_name(value: str, param: str) -> str:
    """The name of a queue, a flavor, a cohort or a priority class."""
    if not _NAME.fullmatch(value):
        raise InvalidArgument(
            f"{value[:80]!r} is no name: 1 to 63 lower-case letters, digits, dashes and dots.",
            param=param,
        )
    return value


def resource(value: str, param: str) -> str:
    """A resource that is counted, such as `cpu` or `nvidia.com/gpu`."""
    if value not in _BARE_RESOURCES and not ("/" in value and _is_qualified(value)):
        raise InvalidArgument(
            f"{value[:80]!r} is no resource: cpu, memory, ephemeral-storage, pods, or one such "
            "as nvidia.com/gpu.",
            param=param,
        )
    return value


def labels(values: Mapping[str, str], param: str) -> Mapping[str, str]:
    """Labels by key."""
    if len(values) > MOST_LABELS:
        raise InvalidArgument(f"At most {MOST_LABELS} labels.", param=param)
    for key, value in values.items():
        label_key(key, param)
        if value and not _WORD.fullmatch(value):
            raise InvalidArgument(f"{value[:80]!r} is no label's value.", param=param)
    return values


def label_key(value: str, param: str) -> str:
    """A label's or a taint's key, with a domain in front or without."""
    if not _is_qualified(value):
        raise InvalidArgument(f"{value[:80]!r} is no label's key.", param=param)
    return value


def _is_qualified(value: str) -> bool:
    prefix, slash, name = value.rpartition("/")
    return bool(_WORD.fullmatch(name)) and (not slash or bool(_PREFIX.fullmatch(prefix)))
