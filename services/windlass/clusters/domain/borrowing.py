"""Capacity, free quota and lending of the queues of a cohort: Kueue's arithmetic; pure.

Follows Kueue's `pkg/cache/scheduler/resource_node.go`: a cohort has what its members bring
in beyond what they keep for themselves, and a member takes from it up to its limit.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from windlass.api.clusters.v1 import clusters_pb2 as pb

INT64 = 2**63 - 1
# A flavor and a resource.
Kind = tuple[str, str]


@dataclass(eq=False)
class _Node:
    """A queue or a cohort, in one flavor and resource."""

    nominal: int = 0
    borrowing: int | None = None
    lending: int | None = None
    # Of a queue; a cohort's is its members'.
    reserved: int = 0
    parent: "_Node | None" = None
    members: list["_Node"] = field(default_factory=list)

    @cached_property
    def quota(self) -> int:
        """Sum of its own quota and the quota that its members contribute."""
        return self.nominal + sum(member.quota - member.kept for member in self.members)

    @cached_property
    def kept(self) -> int:
        """The quota that it does not lend."""
        return 0 if self.lending is None else max(0, self.quota - self.lending)

    @cached_property
    def used(self) -> int:
        return self.reserved + sum(max(0, member.used - member.kept) for member in self.members)

    @cached_property
    def attainable(self) -> int:
        """The most that could ever be reserved through it."""
        if self.parent is None:
            return self.quota
        most = self.kept + self.parent.attainable
        return most if self.borrowing is None else min(most, self.quota + self.borrowing)

    @cached_property
    def available(self) -> int:
        """The quota that could be reserved now; negative while more is in use than there is."""
        if self.parent is None:
            return self.quota - self.used
        shared = self.parent.available
        if self.borrowing is not None:
            brought, taken = self.quota - self.kept, max(0, self.used - self.kept)
            shared = min(shared, brought - taken + self.borrowing)
        return max(0, self.kept - self.used) + shared

    @property
    def root(self) -> "_Node":
        return self if self.parent is None else self.parent.root


def worked_out(
    queues: Sequence[pb.ClusterQueue], cohorts: Sequence[pb.Cohort]
) -> list[pb.ClusterQueue]:
    """Copies of all queues of a cluster with `lent`, `attainable` and `available` of each amount.

    A cohort needs no object of its own; one below itself counts as one at the top.
    """
    copies = [pb.ClusterQueue.FromString(queue.SerializeToString()) for queue in queues]
    for kind in {(quota.flavor, quota.resource) for queue in copies for quota in queue.quotas}:
        _work_out(kind, copies, cohorts)
    return copies


def _work_out(kind: Kind, queues: Sequence[pb.ClusterQueue], cohorts: Sequence[pb.Cohort]) -> None:
    groups = _cohorts(kind, cohorts)
    found: list[tuple[pb.ResourceQuota, _Node]] = []
    for queue in queues:
        quota = _amount(kind, queue.quotas)
        if quota is None:
            continue
        node = _node(quota)
        if queue.cohort:
            _join(node, groups.setdefault(queue.cohort, _Node()))
        found.append((quota, node))
    for quota, node in found:
        quota.attainable = _bounded(node.attainable)
        quota.available = _bounded(node.available)
        quota.borrowed = _bounded(node.reserved - node.nominal)
    for root in {node.root for _, node in found}:
        _lend([(quota, node) for quota, node in found if node.root is root], root)


def _cohorts(kind: Kind, cohorts: Sequence[pb.Cohort]) -> dict[str, _Node]:
    groups = {
        cohort.name: _node(_amount(kind, cohort.quotas) or pb.ResourceQuota()) for cohort in cohorts
    }
    for cohort in cohorts:
        if cohort.parent:
            node, parent = groups[cohort.name], groups.setdefault(cohort.parent, _Node())
            if parent.root is not node:
                _join(node, parent)
    return groups


def _amount(kind: Kind, quotas: Iterable[pb.ResourceQuota]) -> pb.ResourceQuota | None:
    return next((quota for quota in quotas if (quota.flavor, quota.resource) == kind), None)


def _node(quota: pb.ResourceQuota) -> _Node:
    return _Node(
        nominal=quota.nominal,
        borrowing=quota.borrowing_limit if quota.HasField("borrowing_limit") else None,
        lending=quota.lending_limit if quota.HasField("lending_limit") else None,
        reserved=quota.used,
    )


def _bounded(amount: int) -> int:
    return min(max(0, amount), INT64)


def _join(node: _Node, parent: _Node) -> None:
    node.parent = parent
    parent.members.append(node)


def _lend(members: Sequence[tuple[pb.ResourceQuota, _Node]], root: _Node) -> None:
    """Says who lent what is borrowed under a root.

    Kueue does not: it has one pool. Each lender's part is in proportion to what it could
    lend, after what the cohorts have themselves.
    """
    borrowed = sum(quota.borrowed for quota, _ in members)
    idle = [
        min(node.quota - node.kept, max(0, node.nominal - node.reserved)) for _, node in members
    ]
    own = root.quota - sum(node.quota - node.kept for _, node in members)
    total = sum(idle)
    left = min(max(0, borrowed - max(0, own)), total)
    for (quota, _), part in zip(members, idle, strict=True):
        lent = -(-left * part // total) if total else 0
        quota.lent = _bounded(lent)
        left, total = left - lent, total - part
