"""Reasons of clusters, their agents and quota, and of access to Kubernetes."""

from windlass.core.errors import (
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
)
from windlass.core.reasons.reason import reason

REASONS = {
    "cluster_not_found": reason(
        "There is no such cluster, or none of the project; `windlass clusters list` shows all.",
        NotFound,
    ),
    "geography_mismatch": reason(
        "A project's data stays in its geography, and the installation's stores, the cluster, or "
        "the project that it is for are not there; `windlass clusters list` shows the labels.",
        FailedPrecondition,
    ),
    "cluster_live": reason("The cluster's agent is running; stop it first.", FailedPrecondition),
    "cluster_unreachable": reason(
        "The cluster's agent is not connected, or its connection broke; try again, and see whether "
        "the agent runs.",
        Unavailable,
    ),
    "not_kubernetes": reason(
        "The cluster is a machine, which has no namespaces or queues; name a Kubernetes cluster.",
        FailedPrecondition,
    ),
    "namespace_fixed": reason(
        "The project's namespace in the cluster cannot change; unassign the project first.",
        FailedPrecondition,
    ),
    "queue_not_found": reason(
        "The cluster has no such ClusterQueue; `windlass quota` shows those that it has.",
        InvalidArgument,
    ),
    "queue_in_use": reason(
        "A project uses the queue; assign the project to another queue first.", FailedPrecondition
    ),
    # To agents.
    "invalid_registration_key": reason(
        "The registration key is unknown, used or expired; `windlass clusters rekey` gives a new "
        "one.",
        Unauthenticated,
    ),
    "cluster_unregistered": reason(
        "The cluster is not registered any more; register it, and enrol its agent again.",
        Unauthenticated,
    ),
    "executor_mismatch": reason(
        "The agent's executor is not the cluster's; change one of them, as with `windlass "
        "clusters update`.",
        FailedPrecondition,
    ),
    "session_superseded": reason(
        "Another agent took over the cluster; run one agent for each cluster.", FailedPrecondition
    ),
    "credential_expired": reason(
        "The agent's credential has expired; `windlass clusters rekey` gives a registration key.",
        Unauthenticated,
    ),
    "credential_superseded": reason(
        "A newer credential of the cluster is in use; this one cannot be renewed.",
        FailedPrecondition,
    ),
    "credential_permanent": reason(
        "The credential does not expire, so there is nothing to renew.", FailedPrecondition
    ),
    "inventory_gap": reason(
        "The report does not follow the last one; the agent sends a snapshot.", FailedPrecondition
    ),
    "inventory_item_too_large": reason(
        "An object of the inventory is too large; leave out labels.", InvalidArgument
    ),
    "stale_generation": reason(
        "A newer generation of the workload is known; what the caller says is out of date.",
        FailedPrecondition,
    ),
    # The tunnel, and access to Kubernetes.
    "draining": reason("The replica is about to stop; connect to another.", Unavailable),
    "connection_not_found": reason(
        "No client waits for this connection any more; the agent drops it.", NotFound
    ),
    "target_refused": reason(
        "The agent will not, or cannot, connect to the target; its log says why.",
        FailedPrecondition,
    ),
    "too_many_connections": reason(
        "Too many connections to the cluster are open; close some, or try again.",
        ResourceExhausted,
    ),
    "kubernetes_access_off": reason(
        "The server has no Kubernetes listener; an operator can set `sessions.kubernetes.listen`.",
        FailedPrecondition,
    ),
    "not_assigned": reason(
        "The project is not assigned to the cluster; an administrator can do it with `windlass "
        "clusters assign`.",
        FailedPrecondition,
    ),
}
