"""Names in Kubernetes: made from our ids, and checked before they reach an object."""

import hashlib
import re
from collections.abc import Mapping

# What Kubernetes adds to ours, `-node-0-1023` and a pod's suffix, must fit into a label of 63.
LONGEST_NAME = 44
# Pods whose names begin so hold what is not their namespace's alone.
ENGINE_PREFIX = "windlass-engine-"
# Of a label of RFC 1123 and a label's value, of dotted ones, and of one with a domain in front.
LABEL_LENGTH = 63
SUBDOMAIN_LENGTH = 253
QUALIFIED_NAME_LENGTH = SUBDOMAIN_LENGTH + 1 + LABEL_LENGTH
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_UNFIT = re.compile(r"[^a-z0-9]+")


class BadName(ValueError):
    """A name that Kubernetes would not take, or take for something else."""

    def __init__(self, what: str, value: str) -> None:
        super().__init__(f"{what} {value!r} is not a valid Kubernetes name.")


def object_name(job_id: str, attempt: int) -> str:
    """Returns the name of an attempt's objects, a label of RFC 1035: the id and the attempt.

    Ids that are too long, or do not begin with a letter, keep a digest of themselves instead.
    """
    stem = _UNFIT.sub("-", job_id.lower()).strip("-")
    name = f"{stem}-{attempt}"
    if attempt < 0 or len(name) > LONGEST_NAME or not stem[:1].isalpha():
        digest = hashlib.sha256(job_id.encode()).hexdigest()[:16]
        name = f"job-{digest}-{attempt}"
    return dns_label("Name", name)


def engine_name(workload_id: str) -> str:
    """Returns the name of an engine's objects, by which its pods are kept from tenants."""
    stem = _UNFIT.sub("-", workload_id.lower()).strip("-")
    name = f"{ENGINE_PREFIX}{stem}"
    if not stem or len(name) > LONGEST_NAME:
        name = ENGINE_PREFIX + hashlib.sha256(workload_id.encode()).hexdigest()[:16]
    return dns_label("Name", name)


def is_dns_label(value: str) -> bool:
    """Returns True if it is a label of RFC 1123, as namespaces have it."""
    return _LABEL.fullmatch(value) is not None


def is_dns_subdomain(value: str, *, longest: int = SUBDOMAIN_LENGTH) -> bool:
    """Returns True if it is dotted labels of RFC 1123, as queues have it."""
    return len(value) <= longest and _SUBDOMAIN.fullmatch(value) is not None


def is_label_value(value: str) -> bool:
    """Returns True if a label may have it; the empty one counts."""
    return _VALUE.fullmatch(value) is not None


def is_qualified_name(value: str) -> bool:
    """Returns True if it is the name of a label or a resource, such as `nvidia.com/gpu`."""
    prefix, slash, name = value.rpartition("/")
    return name != "" and is_label_value(name) and (not slash or is_dns_subdomain(prefix))


def dns_label(what: str, value: str) -> str:
    """`value`, a label of RFC 1123; raises BadName that says `what`."""
    if not is_dns_label(value):
        raise BadName(what, value)
    return value


def dns_subdomain(what: str, value: str) -> str:
    """`value`, dotted labels of RFC 1123; raises BadName."""
    if not is_dns_subdomain(value):
        raise BadName(what, value)
    return value


def label_value(what: str, value: str) -> str:
    """`value`, fit for a label; raises BadName."""
    if not is_label_value(value):
        raise BadName(what, value)
    return value


def label_key(what: str, value: str) -> str:
    """`value`, a label's or a resource's name such as `nvidia.com/gpu`; raises BadName."""
    if not is_qualified_name(value):
        raise BadName(what, value)
    return value


def label_of(value: str) -> str:
    """`value` as it is where a label may have it, else a digest of it."""
    return value if is_label_value(value) else hashlib.sha256(value.encode()).hexdigest()[:32]


def node_selector(value: Mapping[str, str]) -> dict[str, str]:
    """A checked copy, in order of its keys; raises BadName."""
    return _selector("Node label", value)


def label_selector(value: Mapping[str, str]) -> dict[str, str]:
    """A checked copy, in order of its keys; raises BadName."""
    return _selector("Label", value)


def _selector(what: str, value: Mapping[str, str]) -> dict[str, str]:
    return {
        label_key(what, key): label_value(f"Value of {what.lower()} {key}", value[key])
        for key in sorted(value)
    }
