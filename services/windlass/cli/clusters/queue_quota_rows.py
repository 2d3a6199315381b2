"""A cluster's quota as rows of a table: one for each amount of each queue."""

from collections.abc import Iterator

from windlass.cli.clusters.amounts import spelled_amount
from windlass.cli.framework.columns import Item

_AMOUNTS = ("nominal", "used", "borrowed", "lent")


def rows(cluster: str, quota: Item) -> Iterator[Item]:
    """Yields what is there, and after it what is wanted and not there yet."""
    there = {queue["name"]: queue for queue in quota["cluster_queues"]}
    wanted = {queue["name"]: queue for queue in quota["spec"]["cluster_queues"]}
    for name in sorted({*there, *wanted}):
        queue = there.get(name) or wanted[name]
        for amount in queue["quotas"] or [{}]:
            yield _row(cluster, queue, amount)


def _row(cluster: str, queue: Item, amount: Item) -> Item:
    flavor, resource = amount.get("flavor", ""), amount.get("resource", "")
    return {
        "id": "/".join(part for part in (cluster, queue["name"], flavor, resource) if part),
        "cluster": cluster,
        "queue": queue["name"],
        "cohort": queue["cohort"],
        "flavor": flavor,
        "resource": resource,
        **{name: spelled_amount(amount.get(name), resource) for name in _AMOUNTS},
        "pending": str(queue["pending"]) if "pending" in queue else "",
        "weight": f"{queue['fair_weight'] or 1:g}",
    }
