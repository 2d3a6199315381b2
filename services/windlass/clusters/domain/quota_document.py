"""The quota document of a cluster: what an operator may put into it; pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, get_args

from google.protobuf.message import Message

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.bounds import MAX_QUEUE_QUOTAS, MAX_QUOTA_OBJECTS, MAX_TOLERATIONS
from windlass.clusters.domain import names
from windlass.core.errors import FailedPrecondition, InvalidArgument, NotFound
from windlass.kubernetes import choices

# So that sums stay within what Kubernetes can count.
MAX_AMOUNT = 2**60
# The word before the slash of something to delete, and where it lies in the document.
KINDS = {"flavor": "flavors", "cohort": "cohorts", "cluster_queue": "cluster_queues"}


def edited(spec: pb.QuotaSpec, put: pb.QuotaSpec, delete: Sequence[str]) -> pb.QuotaSpec:
    """The document after a change: objects by name, those put whole in place of older ones.

    Raises InvalidArgument for an object put twice or put and deleted, NotFound for one to
    delete that is not there.
    """
    gone = {kind: set[str]() for kind in KINDS}
    for reference in delete:
        kind, _, name = reference.partition("/")
        if kind not in KINDS or not name:
            known = ", ".join(f"{kind}/NAME" for kind in KINDS)
            raise InvalidArgument(
                f"{reference[:80]!r} must begin with one of {known}.", param="delete"
            )
        gone[kind].add(name)
    result = pb.QuotaSpec()
    for kind, place in KINDS.items():
        objects = _edited(getattr(spec, place), getattr(put, place), gone[kind], kind)
        getattr(result, place).extend(objects)
    return result


def _edited(
    old: Iterable[Message], put: Iterable[Message], gone: set[str], kind: str
) -> list[Message]:
    by_name: dict[str, Message] = {_name(one): one for one in old}
    if missing := gone - by_name.keys():
        raise NotFound(
            f"delete must name what Windlass manages in this cluster; a {kind} "
            f"{min(missing)!r} is not of it. `windlass quota show` lists all.",
            param="delete",
        )
    seen = set(gone)
    for one in put:
        if _name(one) in seen:
            raise InvalidArgument(f"{kind} {_name(one)!r} appears twice.", param=KINDS[kind])
        seen.add(_name(one))
        by_name[_name(one)] = one
    return [by_name[name] for name in sorted(by_name.keys() - gone)]


def _name(one: Message) -> str:
    return str(getattr(one, "name"))  # noqa: B009 - every object of the document has one


def checked(
    spec: pb.QuotaSpec, *, flavors: Collection[str] = (), cohorts: Iterable[pb.Cohort] = ()
) -> pb.QuotaSpec:
    """The document without what is observed; raises InvalidArgument that names the place.

    `flavors` and `cohorts` are in the cluster already, of whatever origin.
    """
    if sum(len(getattr(spec, place)) for place in KINDS.values()) > MAX_QUOTA_OBJECTS:
        raise InvalidArgument(
            f"At most {MAX_QUOTA_OBJECTS} objects are allowed.", param="cluster_queues"
        )
    known = {*flavors, *(flavor.name for flavor in spec.flavors)}
    parents = {one.name: one.parent for one in (*cohorts, *spec.cohorts)}
    return pb.QuotaSpec(
        flavors=[_flavor(flavor) for flavor in spec.flavors],
        cohorts=[_cohort(cohort, parents) for cohort in spec.cohorts],
        cluster_queues=[_queue(queue, known) for queue in spec.cluster_queues],
    )


def require_unused(deleted: Collection[str], used: Mapping[str, str]) -> None:
    """Raises FailedPrecondition when something deleted is an assignment's; `used` says whose."""
    for reference in deleted:
        if project := used.get(reference):
            raise FailedPrecondition(
                f"{reference} is used by project {project}; assign the project to another "
                "queue first.",
                reason="queue_in_use",
                param="delete",
            )


def _flavor(flavor: pb.ResourceFlavor) -> pb.ResourceFlavor:
    at = f"flavors[{flavor.name[:64]}]"
    names.object_name(flavor.name, "flavors.name")
    names.labels(flavor.node_labels, f"{at}.node_labels")
    if len(flavor.tolerations) > MAX_TOLERATIONS:
        raise InvalidArgument(
            f"At most {MAX_TOLERATIONS} tolerations are allowed.", param=f"{at}.tolerations"
        )
    for toleration in flavor.tolerations:
        _check_toleration(toleration, f"{at}.tolerations")
    return flavor


def _check_toleration(toleration: pb.Toleration, param: str) -> None:
    _one_of(toleration.operator, choices.TolerationOperator, f"{param}.operator")
    _one_of(toleration.effect, choices.TaintEffect, f"{param}.effect")
    if toleration.key:
        names.label_key(toleration.key, f"{param}.key")
    elif toleration.operator != "Exists":
        raise InvalidArgument(
            "A key is required unless the operator is `Exists`.", param=f"{param}.key"
        )
    if toleration.operator == "Exists" and toleration.value:
        raise InvalidArgument(
            "A value must not be set with the operator `Exists`.", param=f"{param}.value"
        )
    names.labels({"value": toleration.value}, f"{param}.value")


def _cohort(cohort: pb.Cohort, parents: Mapping[str, str]) -> pb.Cohort:
    at = f"cohorts[{cohort.name[:64]}]"
    names.object_name(cohort.name, "cohorts.name")
    _amount(cohort.fair_weight_millis, f"{at}.fair_weight_millis")
    above, name = {cohort.name}, cohort.parent
    if name:
        names.object_name(name, f"{at}.parent")
    while name:
        if name in above:
            raise InvalidArgument("The cohort would be its own ancestor.", param=f"{at}.parent")
        above.add(name)
        name = parents.get(name, "")
    return pb.Cohort(
        name=cohort.name, parent=cohort.parent, fair_weight_millis=cohort.fair_weight_millis
    )


def _queue(queue: pb.ClusterQueue, flavors: Collection[str]) -> pb.ClusterQueue:
    at = f"cluster_queues[{queue.name[:64]}]"
    names.object_name(queue.name, "cluster_queues.name")
    if queue.cohort:
        names.object_name(queue.cohort, f"{at}.cohort")
    _amount(queue.fair_weight_millis, f"{at}.fair_weight_millis")
    _one_of(
        queue.reclaim_within_cohort,
        choices.ReclaimWithinCohort,
        f"{at}.reclaim_within_cohort",
    )
    _one_of(
        queue.within_cluster_queue,
        choices.WithinClusterQueue,
        f"{at}.within_cluster_queue",
    )
    if len(queue.quotas) > MAX_QUEUE_QUOTAS:
        raise InvalidArgument(
            f"At most {MAX_QUEUE_QUOTAS} quotas are allowed.", param=f"{at}.quotas"
        )
    kinds = [(quota.flavor, quota.resource) for quota in queue.quotas]
    if len(set(kinds)) < len(kinds):
        raise InvalidArgument("The same flavor and resource appear twice.", param=f"{at}.quotas")
    quotas = [_quota(quota, flavors, f"{at}.quotas", queue.cohort) for quota in queue.quotas]
    _check_groups(kinds, f"{at}.quotas")
    return pb.ClusterQueue(
        name=queue.name,
        cohort=queue.cohort,
        quotas=quotas,
        fair_weight_millis=queue.fair_weight_millis,
        reclaim_within_cohort=queue.reclaim_within_cohort,
        within_cluster_queue=queue.within_cluster_queue,
    )


def _quota(
    quota: pb.ResourceQuota, flavors: Collection[str], at: str, cohort: str
) -> pb.ResourceQuota:
    names.object_name(quota.flavor, f"{at}.flavor")
    names.resource(quota.resource, f"{at}.resource")
    if quota.flavor not in flavors:
        raise InvalidArgument(
            f"The cluster has no flavor {quota.flavor!r}; put it first.", param=f"{at}.flavor"
        )
    wanted = pb.ResourceQuota(flavor=quota.flavor, resource=quota.resource)
    wanted.nominal = _amount(quota.nominal, f"{at}.nominal")
    for limit in ("borrowing_limit", "lending_limit"):
        if quota.HasField(limit):
            if not cohort:
                raise InvalidArgument(
                    "A borrowing or lending limit requires a cohort.", param=f"{at}.{limit}"
                )
            setattr(wanted, limit, _amount(getattr(quota, limit), f"{at}.{limit}"))
    if quota.HasField("lending_limit") and quota.lending_limit > quota.nominal:
        raise InvalidArgument(
            f"A queue cannot lend {quota.lending_limit} of {quota.nominal}.",
            param=f"{at}.lending_limit",
        )
    return wanted


def _check_groups(kinds: Iterable[tuple[str, str]], param: str) -> None:
    """Kueue groups resources: flavors of one group have the same, and no group shares any."""
    resources: dict[str, set[str]] = {}
    for flavor, resource in kinds:
        resources.setdefault(flavor, set()).add(resource)
    for flavor, mine in resources.items():
        for other, theirs in resources.items():
            if mine & theirs and mine != theirs:
                raise InvalidArgument(
                    f"The flavors {flavor!r} and {other!r} share {', '.join(sorted(mine & theirs))}"
                    ", so each needs an amount of every resource that the other has.",
                    param=param,
                )


def _amount(value: int, param: str) -> int:
    if not 0 <= value <= MAX_AMOUNT:
        raise InvalidArgument(f"Must be between 0 and {MAX_AMOUNT}.", param=param)
    return value


def _one_of(value: str, choice: Any, param: str) -> None:
    allowed = get_args(choice)
    if value not in allowed:
        known = ", ".join(word for word in allowed if word)
        raise InvalidArgument(f"{value[:80]!r} must be one of {known}.", param=param)
