"""What a cluster and its workloads are; pure."""

import re
from dataclasses import dataclass

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.core.errors import InvalidArgument

HEARTBEAT_SECONDS = 5
# Three heartbeats missed.
LIVE_SECONDS = 15
REGISTRATION_SECONDS = 3600
# How long a workload that is deleted and gone stays visible to its owner.
COLLECTED_SECONDS = 3600
# Sessions of a cluster that are remembered as fenced.
FENCED_SESSIONS = 32

TERMINAL = frozenset({pb.PHASE_SUCCEEDED, pb.PHASE_FAILED, pb.PHASE_STOPPED})

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True, slots=True)
class Cluster:
    """One cluster; times are Unix seconds, 0 for never."""

    id: str
    name: str
    created_at: int
    last_seen_at: int
    live: bool
    agent_version: str
    executor: str
    # Serialized `Capacity` as the agent said it last.
    capacity: bytes
    # Workloads placed there that have not ended.
    placed_jobs: int
    placed_engines: int


@dataclass(frozen=True, slots=True)
class Change:
    """Rows beyond a cursor, and the cursor that covers them."""

    messages: tuple[bytes, ...]
    revision: int


def cluster_topic(cluster_id: str) -> str:
    """What wakes the watch of a cluster's agent."""
    return f"cluster:{cluster_id}"


def status_topic(owner: str) -> str:
    """What wakes the status watches of an owner."""
    return f"workload-status:{owner}"


def check_name(name: str) -> str:
    """A cluster's name, usable as a DNS label; raises InvalidArgument."""
    if not _NAME.fullmatch(name):
        raise InvalidArgument(
            "A cluster's name has 1 to 63 lower-case letters, digits and dashes.", param="name"
        )
    return name


def check_identifier(value: str, param: str) -> str:
    """An id made by us or by an agent, safe in a path; raises InvalidArgument."""
    if not _IDENTIFIER.fullmatch(value):
        raise InvalidArgument(f"{param} is not an identifier.", param=param)
    return value


def check_workload(workload: pb.Workload) -> pb.Workload:
    """A workload that an agent can take; raises InvalidArgument."""
    check_identifier(workload.id, "workload.id")
    check_identifier(workload.owner, "workload.owner")
    check_identifier(workload.cluster_id, "workload.cluster_id")
    if workload.generation < 1:
        raise InvalidArgument("A generation starts at 1.", param="workload.generation")
    if workload.kind not in (
        pb.WORKLOAD_KIND_RUN_TO_COMPLETION,
        pb.WORKLOAD_KIND_LONG_RUNNING,
    ):
        raise InvalidArgument("The workload has no kind.", param="workload.kind")
    if workload.desired == pb.DESIRED_STATE_UNSPECIFIED:
        raise InvalidArgument("The workload has no desired state.", param="workload.desired")
    if workload.WhichOneof("spec") is None and workload.desired != pb.DESIRED_STATE_DELETED:
        raise InvalidArgument("The workload has no spec.", param="workload.spec")
    return workload
