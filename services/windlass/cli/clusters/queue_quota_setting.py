"""`windlass quota set`: one amount of a queue, or how the queue behaves."""

from enum import StrEnum
from typing import Annotated, Any

import typer

from windlass.cli.clusters.amounts import amount, limit
from windlass.cli.clusters.kubernetes import Cluster
from windlass.cli.framework.calling import Call
from windlass.cli.framework.columns import Item
from windlass.cli.framework.failures import USAGE, Problem

_FIELDS = (
    "name", "cohort", "quotas", "fair_weight", "reclaim_within_cohort", "within_cluster_queue",
)  # fmt: skip
_AMOUNT_FIELDS = ("flavor", "resource", "nominal", "borrowing_limit", "lending_limit")


class Reclaim(StrEnum):
    """Jobs of the cohort that may be preempted to reclaim lent quota."""

    ANY = "Any"
    LOWER_PRIORITY = "LowerPriority"
    NEVER = "Never"


class Preempt(StrEnum):
    """Jobs of the same queue that may be preempted."""

    LOWER_PRIORITY = "LowerPriority"
    LOWER_OR_NEWER = "LowerOrNewerEqualPriority"
    NEVER = "Never"


def set_queue(
    call: Call,
    cluster: Cluster,
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="Name of the ClusterQueue.")],
    flavor: Annotated[str, typer.Option(help="Flavor of the quota to set.")] = "",
    resource: Annotated[
        str,
        typer.Option(help="Resource of the quota to set, such as nvidia.com/gpu, cpu or memory."),
    ] = "",
    nominal: Annotated[
        str | None, typer.Option(help="Nominal quota, such as 8, 500m or 64Gi.")
    ] = None,
    borrowing_limit: Annotated[
        str | None, typer.Option(help="Most that it may borrow; none: no limit.")
    ] = None,
    lending_limit: Annotated[
        str | None, typer.Option(help="Most that it lends; none: all that is idle.")
    ] = None,
    cohort: Annotated[
        str | None, typer.Option(help="Cohort in which it lends and borrows; empty: none.")
    ] = None,
    weight: Annotated[
        float | None, typer.Option(min=0, help="Fair-sharing weight in the cohort.")
    ] = None,
    reclaim: Annotated[
        Reclaim | None,
        typer.Option(help="Which workloads of the cohort it may preempt to reclaim its quota."),
    ] = None,
    preempt: Annotated[
        Preempt | None,
        typer.Option(help="Which of its own workloads may be preempted by others of it."),
    ] = None,
) -> None:
    """Sets an amount of a queue, or how it behaves; makes the queue when it is not there."""
    found = call.client.clusters.find(cluster)["id"]
    changed = _present(call.client.clusters.quota(found), queue)
    ways = {
        "cohort": cohort,
        "fair_weight": weight,
        "reclaim_within_cohort": reclaim and reclaim.value,
        "within_cluster_queue": preempt and preempt.value,
    }
    changed |= {name: value for name, value in ways.items() if value is not None}
    limits = {"borrowing_limit": borrowing_limit, "lending_limit": lending_limit}
    if flavor and resource:
        _set_amount(changed, flavor, resource, nominal, limits)
    elif flavor or resource or nominal or any(limits.values()):
        raise Problem("An amount needs --flavor and --resource.", USAGE)
    answer = call.client.clusters.change_quota(found, cluster_queues=[changed])
    if not call.out.is_table:
        call.out.item(answer)
    call.out.note(f"Set queue {queue} of {cluster}.")


def _present(quota: Item, name: str) -> Item:
    """The queue as it is managed; else as it is there, to manage it from now on."""
    for queue in (*quota["spec"]["cluster_queues"], *quota["cluster_queues"]):
        if queue["name"] == name:
            kept = {field: queue[field] for field in _FIELDS}
            quotas = [{field: one[field] for field in _AMOUNT_FIELDS} for one in queue["quotas"]]
            return kept | {"quotas": quotas}
    return {"name": name, "quotas": []}


def _set_amount(
    queue: Item, flavor: str, resource: str, nominal: str | None, limits: dict[str, Any]
) -> None:
    quotas: list[Item] = queue["quotas"]
    for one in quotas:
        if (one["flavor"], one["resource"]) == (flavor, resource):
            break
    else:
        if nominal is None:
            raise Problem(f"{queue['name']} has no {resource} of {flavor} yet: give --nominal.")
        one = {"flavor": flavor, "resource": resource}
        quotas.append(one)
    if nominal is not None:
        one["nominal"] = amount(nominal, resource)
    one |= {name: limit(value, resource) for name, value in limits.items() if value is not None}
