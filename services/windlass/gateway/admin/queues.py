"""Kueue's queues as JSON, in natural units: `cpu` in cores, weights as they are said."""

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.gateway.openai.rendering import Json
from windlass.gateway.plain import plain

_AMOUNTS = (
    "nominal", "borrowing_limit", "lending_limit", "used", "borrowed", "lent", "attainable",
    "available",
)  # fmt: skip
Number = int | float


def render_queue(queue: pb.ClusterQueue) -> Json:
    """A ClusterQueue with what is in use of it."""
    fields = plain(queue) | {"quotas": [render_amount(one) for one in queue.quotas]}
    return _with_weight(fields)


def render_cohort(cohort: pb.Cohort) -> Json:
    """A cohort, and what it brings in itself."""
    fields = plain(cohort) | {"quotas": [render_amount(one) for one in cohort.quotas]}
    return _with_weight(fields)


def render_amount(quota: pb.ResourceQuota) -> Json:
    """Amounts of one resource in one flavor."""
    fields = plain(quota)
    if quota.resource == "cpu":
        known = {name: fields[name] for name in _AMOUNTS if fields[name] is not None}
        fields |= {name: whole(value / 1000) for name, value in known.items()}
    return fields


def whole(number: float) -> Number:
    """Returns a number, as an integer where it has no fraction."""
    return int(number) if number == int(number) else number


def _with_weight(fields: Json) -> Json:
    """Returns fields with the weight among others, 0 for Kueue's own."""
    millis = fields.pop("fair_weight_millis")
    return {**fields, "fair_weight": whole(millis / 1000)}
