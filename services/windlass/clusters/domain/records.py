"""Records of a cluster and its workloads; pure."""

from dataclasses import dataclass

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.bounds import ISSUER_LENGTH, MAX_PRICE_MICROS
from windlass.clusters.domain import names
from windlass.clusters.domain.policy import OperatorPolicy
from windlass.core.errors import InvalidArgument
from windlass.core.ids import is_identifier
from windlass.core.oidc.keys import InvalidJwks, VerificationKeys
from windlass.kubernetes.names import is_dns_label

CLUSTER_TOPIC = "cluster:"
HEARTBEAT_SECONDS = 5
# Three heartbeats missed.
LIVE_SECONDS = 15
REGISTRATION_SECONDS = 3600
REGISTRATION_PREFIX = "wlr-"
CREDENTIAL_PREFIX = "wla-"
# How long a workload that is deleted and gone stays visible to its owner.
COLLECTED_SECONDS = 3600
# Sessions of a cluster that are remembered as fenced.
FENCED_SESSIONS = 32


@dataclass(frozen=True, slots=True)
class Observed:
    """Sums of a cluster's inventory, and when that was reported last, in Unix seconds."""

    at: int
    gpus: int
    used_gpus: int
    cpu_millis: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Cluster:
    """One cluster; times are Unix seconds, 0 for never."""

    id: str
    name: str
    created_at: int
    last_seen_at: int
    live: bool
    agent_version: str
    policy: OperatorPolicy
    # What its agent said of itself last.
    reported_executor: str
    # Serialized `Capacity` as the agent said it last.
    capacity: bytes
    # Workloads placed there that have not ended.
    placed_jobs: int
    placed_engines: int
    # Of an agent that reports an inventory.
    observed: Observed | None = None


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """Rows beyond a cursor, and the cursor that covers them."""

    messages: tuple[bytes, ...]
    revision: int
    # Of the cluster's spec, where the change is a cluster's.
    spec_revision: int = 0


@dataclass(frozen=True, slots=True)
class Issued:
    """A new credential's cluster and its end in Unix seconds, 0 for never."""

    cluster_id: str
    expires_at: int = 0


@dataclass(frozen=True, slots=True)
class Holder:
    """Holder of a credential, and its expiry in Unix seconds, 0 for never."""

    cluster_id: str
    name: str
    expires_at: int


# An assignment was deleted, and its last jobs may still run.
WAKE_DRAINING = "clusters draining"
# A cluster got another geography, and what may not be there any more has to end.
WAKE_RELABELLED = "clusters relabelled"


def cluster_topic(cluster_id: str) -> str:
    """The topic that wakes the watch of a cluster's agent."""
    return CLUSTER_TOPIC + cluster_id


def status_topic(owner: str) -> str:
    """The topic that wakes the status watches of an owner."""
    return f"workload-status:{owner}"


def check_name(name: str) -> str:
    """A cluster's name, usable as a DNS label; raises InvalidArgument."""
    if not is_dns_label(name):
        raise InvalidArgument(
            "A cluster's name must be 1 to 63 lower-case letters, digits and dashes.", param="name"
        )
    return name


def check_identifier(value: str, param: str) -> str:
    """An id made by us or by an agent, safe in a path; raises InvalidArgument."""
    if not is_identifier(value):
        raise InvalidArgument(f"{param} is not an identifier.", param=param)
    return value


def check_issuer(issuer: str, jwks: str) -> tuple[str, str]:
    """An issuer of tokens of a cluster, and its public keys; raises InvalidArgument."""
    if not 1 <= len(issuer) <= ISSUER_LENGTH or not issuer.isprintable():
        raise InvalidArgument("issuer is not a name of an issuer.", param="issuer")
    try:
        VerificationKeys.parse(jwks.encode())
    except InvalidJwks as error:
        raise InvalidArgument(f"The JWKS {error}.", param="jwks") from error
    return issuer, jwks


def check_workload(workload: pb.Workload) -> pb.Workload:
    """A workload that an agent can take; raises InvalidArgument."""
    check_identifier(workload.id, "workload.id")
    check_identifier(workload.owner, "workload.owner")
    check_identifier(workload.cluster_id, "workload.cluster_id")
    if workload.generation < 1:
        raise InvalidArgument("generation must be at least 1.", param="workload.generation")
    if workload.kind not in (
        pb.WORKLOAD_KIND_RUN_TO_COMPLETION,
        pb.WORKLOAD_KIND_LONG_RUNNING,
        pb.WORKLOAD_KIND_STATUS_MIRROR,
        pb.WORKLOAD_KIND_FILES,
        pb.WORKLOAD_KIND_ENGINE_TRAINING,
    ):
        raise InvalidArgument("The workload needs a kind.", param="workload.kind")
    if workload.desired == pb.DESIRED_STATE_UNSPECIFIED:
        raise InvalidArgument("The workload needs a desired state.", param="workload.desired")
    if workload.WhichOneof("spec") is None and workload.desired != pb.DESIRED_STATE_DELETED:
        raise InvalidArgument("The workload needs a spec.", param="workload.spec")
    return workload


def owning_projects(workload: pb.Workload) -> set[str]:
    """The projects that own something of what a workload brings to its cluster; pure."""
    runs = workload.desired == pb.DESIRED_STATE_RUNNING
    if not runs or workload.kind == pb.WORKLOAD_KIND_STATUS_MIRROR:
        return set()
    return {workload.project_id, *(one.project_id for one in workload.engine.adapters)} - {""}


def checked_assignment(asked: pb.Assignment) -> pb.Assignment:
    """The operator's assignment with defaults filled in; raises InvalidArgument.

    Its namespace may be empty; its LocalQueue has the ClusterQueue's name unless it is given
    another, since Kueue lets none change what is behind it.
    """
    check_identifier(asked.cluster_id, "cluster_id")
    check_identifier(asked.project_id, "project_id")
    if asked.namespace:
        names.namespace(asked.namespace)
    for name in ("local_queue", "cluster_queue", "priority_class"):
        if getattr(asked, name):
            names.object_name(getattr(asked, name), name)
    if asked.local_queue and not asked.cluster_queue:
        raise InvalidArgument("A LocalQueue needs a ClusterQueue.", param="cluster_queue")
    if not 0 <= asked.price_micros <= MAX_PRICE_MICROS:
        raise InvalidArgument(
            f"price_micros must be between 0 and {MAX_PRICE_MICROS}.", param="price_micros"
        )
    return pb.Assignment(
        cluster_id=asked.cluster_id,
        project_id=asked.project_id,
        namespace=asked.namespace,
        cluster_queue=asked.cluster_queue,
        local_queue=asked.local_queue or asked.cluster_queue,
        priority_class=asked.priority_class,
        price_micros=asked.price_micros,
        node_selector=names.labels(asked.node_selector, "node_selector"),
    )


def judged(
    assignment: pb.Assignment, state: str, revision: int, status: pb.SpecStatus | None
) -> pb.Assignment:
    """The assignment with its agent's report on it; `revision` is that of its last change."""
    heard = status is not None and status.revision >= revision
    error = status.assignment_errors.get(assignment.project_id, "") if status and heard else ""
    if state == "draining":
        assignment.message = (
            "The project's last jobs there are ending; the assignment is removed afterwards."
        )
    elif state == "removing":
        assignment.message = error or "The cluster's agent is removing it."
    elif not heard:
        assignment.message = "The cluster's agent has not set it up yet."
    else:
        assignment.ready, assignment.message = not error, error
    return assignment
