"""Validation of a cluster's quota."""

from typing import Any

import pytest

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.clusters.domain.quota_document import checked, edited
from windlass.core.errors import AppError, InvalidArgument, NotFound


def amount(flavor: str = "f", resource: str = "cpu", **fields: Any) -> pb.ResourceQuota:
    return pb.ResourceQuota(flavor=flavor, resource=resource, **fields)


def queue(*quotas: pb.ResourceQuota, **fields: Any) -> pb.QuotaSpec:
    fields = {"name": "q"} | fields
    return pb.QuotaSpec(
        flavors=[pb.ResourceFlavor(name=name) for name in ("f", "g", "h")],
        cluster_queues=[pb.ClusterQueue(quotas=quotas, **fields)],
    )


def flavor(**fields: Any) -> pb.QuotaSpec:
    return pb.QuotaSpec(flavors=[pb.ResourceFlavor(**({"name": "f"} | fields))])


def cohorts(**parents: str) -> pb.QuotaSpec:
    return pb.QuotaSpec(
        cohorts=[pb.Cohort(name=name, parent=parent) for name, parent in parents.items()]
    )


@pytest.mark.parametrize(
    ("spec", "param"),
    [
        (queue(name="Q"), "cluster_queues.name"),
        (queue(name="q" * 64), "cluster_queues.name"),
        (queue(cohort="../c"), "cluster_queues[q].cohort"),
        (queue(fair_weight_millis=-1), "cluster_queues[q].fair_weight_millis"),
        (queue(reclaim_within_cohort="Always"), "cluster_queues[q].reclaim_within_cohort"),
        (queue(within_cluster_queue="Any"), "cluster_queues[q].within_cluster_queue"),
        (queue(amount(nominal=-1)), "cluster_queues[q].quotas.nominal"),
        (queue(amount(nominal=2**62)), "cluster_queues[q].quotas.nominal"),
        (queue(amount(resource="gpu")), "cluster_queues[q].quotas.resource"),
        (queue(amount(resource="a/b/c")), "cluster_queues[q].quotas.resource"),
        (queue(amount("none")), "cluster_queues[q].quotas.flavor"),
        (queue(amount("F")), "cluster_queues[q].quotas.flavor"),
        (queue(amount(borrowing_limit=1)), "cluster_queues[q].quotas.borrowing_limit"),
        (queue(amount(borrowing_limit=-1), cohort="c"), "cluster_queues[q].quotas.borrowing_limit"),
        (
            queue(amount(nominal=1, lending_limit=2), cohort="c"),
            "cluster_queues[q].quotas.lending_limit",
        ),
        (queue(amount(), amount()), "cluster_queues[q].quotas"),
        (
            queue(amount("f"), amount("f", "memory"), amount("g", "memory")),
            "cluster_queues[q].quotas",
        ),
        (flavor(name="F"), "flavors.name"),
        (flavor(node_labels={"a b": ""}), "flavors[f].node_labels"),
        (flavor(node_labels={"a": "b c"}), "flavors[f].node_labels"),
        (flavor(tolerations=[pb.Toleration(key="a", operator="In")]),
         "flavors[f].tolerations.operator"),
        (flavor(tolerations=[pb.Toleration(key="a", effect="Never")]),
         "flavors[f].tolerations.effect"),
        (flavor(tolerations=[pb.Toleration()]), "flavors[f].tolerations.key"),
        (flavor(tolerations=[pb.Toleration(key="a", operator="Exists", value="b")]),
         "flavors[f].tolerations.value"),
        (cohorts(a="a"), "cohorts[a].parent"),
        (cohorts(a="b", b="c", c="a"), "cohorts[a].parent"),
        (cohorts(A=""), "cohorts.name"),
        (cohorts(a="B"), "cohorts[a].parent"),
    ],
)  # fmt: skip
def test_a_mistake_is_named(spec: pb.QuotaSpec, param: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        checked(spec)
    assert caught.value.param == param


def test_good_ones_pass_without_what_is_observed() -> None:
    spec = queue(
        amount("f", "nvidia.com/gpu", nominal=8, lending_limit=0, borrowing_limit=4, used=3),
        amount("g", "nvidia.com/gpu", nominal=8),
        amount("h", "memory", nominal=2**40),
        cohort="all.teams",
        fair_weight_millis=2500,
        reclaim_within_cohort="Any",
        within_cluster_queue="LowerPriority",
        pending=7,
        message="x",
    )
    (kept,) = checked(spec).cluster_queues
    assert (kept.pending, kept.message, kept.quotas[0].used) == (0, "", 0)
    assert kept.quotas[0].HasField("lending_limit")
    assert not kept.quotas[1].HasField("lending_limit")
    assert checked(flavor(tolerations=[pb.Toleration(operator="Exists")]))
    assert checked(queue(amount("seen")), flavors={"seen"})


def test_a_circle_through_what_is_there_already_is_seen() -> None:
    with pytest.raises(InvalidArgument):
        checked(cohorts(a="b"), cohorts=[pb.Cohort(name="b", parent="a")])
    assert checked(cohorts(a="b", b=""), cohorts=[pb.Cohort(name="b", parent="a")])


def test_objects_are_replaced_by_name() -> None:
    old = queue(amount(nominal=1))
    put = pb.QuotaSpec(cluster_queues=[pb.ClusterQueue(name="q"), pb.ClusterQueue(name="p")])
    result = edited(old, put, ["flavor/h"])
    assert [one.name for one in result.cluster_queues] == ["p", "q"]
    assert not result.cluster_queues[1].quotas
    assert [one.name for one in result.flavors] == ["f", "g"]


@pytest.mark.parametrize(
    ("put", "delete", "error"),
    [
        (pb.QuotaSpec(), ["flavor/none"], NotFound),
        (pb.QuotaSpec(), ["flavor/"], InvalidArgument),
        (pb.QuotaSpec(), ["queue/q"], InvalidArgument),
        (pb.QuotaSpec(), [""], InvalidArgument),
        (flavor(), ["flavor/f"], InvalidArgument),
        (pb.QuotaSpec(flavors=[pb.ResourceFlavor(name="x")] * 2), [], InvalidArgument),
    ],
)
def test_what_contradicts_itself_is_refused(
    put: pb.QuotaSpec, delete: list[str], error: type[AppError]
) -> None:
    with pytest.raises(error):
        edited(queue(), put, delete)
