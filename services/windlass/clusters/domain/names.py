"""Names and labels that reach a cluster, checked as Kubernetes would; pure.

Each check answers its value, or raises InvalidArgument that names the field.
"""

import re
from collections.abc import Mapping

from windlass.bounds import MAX_NODE_LABELS
from windlass.core.errors import InvalidArgument
from windlass.kubernetes.names import (
    LABEL_LENGTH,
    is_dns_label,
    is_dns_subdomain,
    is_label_value,
    is_qualified_name,
)

# Amounts that Kubernetes knows by a bare name.
_BARE_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage", "pods"})
_RESERVED = re.compile(r"(kube|openshift)-.*|.*-system|default|windlass-agent")


def namespace(value: str, param: str = "namespace") -> str:
    """A namespace that may be a project's: not one of the cluster's own."""
    if not is_dns_label(value):
        raise InvalidArgument(
            f"{value[:80]!r} is not a namespace: it must be 1 to 63 lower-case letters, "
            "digits and dashes.",
            param=param,
        )
    if _RESERVED.fullmatch(value):
        raise InvalidArgument(
            f"The namespace {value!r} is the cluster's own; choose another.", param=param
        )
    return value


def derived_namespace(project_id: str) -> str:
    """The namespace of a project for which none was given."""
    return "windlass-" + re.sub(r"[^a-z0-9]+", "-", project_id.lower()).strip("-")[:54]


def object_name(value: str, param: str) -> str:
    """The name of a queue, a flavor, a cohort or a priority class."""
    # A queue's name becomes a label on a job.
    if not is_dns_subdomain(value, longest=LABEL_LENGTH):
        raise InvalidArgument(
            f"{value[:80]!r} is not a name: it must be 1 to 63 lower-case letters, digits, "
            "dashes and dots.",
            param=param,
        )
    return value


def resource(value: str, param: str) -> str:
    """A resource that is counted, such as `cpu` or `nvidia.com/gpu`."""
    if value not in _BARE_RESOURCES and not ("/" in value and is_qualified_name(value)):
        raise InvalidArgument(
            f"{value[:80]!r} is not a resource: it must be cpu, memory, ephemeral-storage, "
            "pods, or one such "
            "as nvidia.com/gpu.",
            param=param,
        )
    return value


def labels(values: Mapping[str, str], param: str) -> Mapping[str, str]:
    """Labels by key."""
    if len(values) > MAX_NODE_LABELS:
        raise InvalidArgument(f"At most {MAX_NODE_LABELS} labels are allowed.", param=param)
    for key, value in values.items():
        label_key(key, param)
        if not is_label_value(value):
            raise InvalidArgument(f"{value[:80]!r} is not a valid label value.", param=param)
    return values


def label_key(value: str, param: str) -> str:
    """A label's or a taint's key, with a domain in front or without."""
    if not is_qualified_name(value):
        raise InvalidArgument(f"{value[:80]!r} is not a valid label key.", param=param)
    return value
