"""/v1/clusters/{id}/quota: Kueue's queues, cohorts and flavors."""

from collections.abc import Mapping
from typing import Annotated, Any, Self

from google.protobuf import json_format
from pydantic import Field, model_validator

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.clusters.v1 import clusters_pb2_grpc as rpc
from windlass.bounds import MAX_NODE_LABELS, MAX_QUEUE_QUOTAS, MAX_QUOTA_OBJECTS, MAX_TOLERATIONS
from windlass.core.app import App
from windlass.gateway.admin.queues import Number, render_cohort, render_queue
from windlass.gateway.openai.rendering import Json
from windlass.gateway.parameters import Body
from windlass.gateway.plain import plain
from windlass.gateway.resource_router import ResourceRouter
from windlass.kubernetes import choices
from windlass.kubernetes.names import LABEL_LENGTH, QUALIFIED_NAME_LENGTH

Name = Annotated[str, Field(max_length=LABEL_LENGTH)]
QualifiedName = Annotated[str, Field(max_length=QUALIFIED_NAME_LENGTH)]
Reference = Annotated[str, Field(max_length=LABEL_LENGTH + len("cluster_queue/"))]
# As far as JSON counts exactly.
Amount = Annotated[Number, Field(ge=0, le=2**53)]
Weight = Annotated[float, Field(ge=0, le=1_000_000)]


class Toleration(Body):
    """A toleration, with Kubernetes's fields."""

    key: QualifiedName = ""
    operator: choices.TolerationOperator = ""
    value: Name = ""
    effect: choices.TaintEffect = ""


class Flavor(Body):
    """A kind of node."""

    name: Name
    node_labels: Annotated[dict[str, str], Field(max_length=MAX_NODE_LABELS)] = {}
    tolerations: Annotated[list[Toleration], Field(max_length=MAX_TOLERATIONS)] = []


class Cohort(Body):
    """Queues that lend to each other; cohorts nest."""

    name: Name
    parent: Name = ""
    fair_weight: Weight = 0


class ResourceQuota(Body):
    """An amount of a resource in a flavor: `cpu` in cores, memory in bytes, the rest counted."""

    flavor: Name
    resource: QualifiedName
    nominal: Amount
    borrowing_limit: Amount | None = None
    lending_limit: Amount | None = None

    @model_validator(mode="after")
    def _countable(self) -> Self:
        for amount in (self.nominal, self.borrowing_limit, self.lending_limit):
            if self.resource != "cpu" and amount is not None and amount != int(amount):
                raise ValueError(f"{self.resource} must be a whole number")
        return self


class ClusterQueue(Body):
    """Quota of a team."""

    name: Name
    cohort: Name = ""
    quotas: Annotated[list[ResourceQuota], Field(max_length=MAX_QUEUE_QUOTAS)] = []
    fair_weight: Weight = 0
    reclaim_within_cohort: choices.ReclaimWithinCohort = ""
    within_cluster_queue: choices.WithinClusterQueue = ""


class ChangeQuota(Body):
    """Objects to put, whole, by name, and to delete, as `cluster_queue/NAME`."""

    flavors: Annotated[list[Flavor], Field(max_length=MAX_QUOTA_OBJECTS)] = []
    cohorts: Annotated[list[Cohort], Field(max_length=MAX_QUOTA_OBJECTS)] = []
    cluster_queues: Annotated[list[ClusterQueue], Field(max_length=MAX_QUOTA_OBJECTS)] = []
    delete: Annotated[list[Reference], Field(max_length=MAX_QUOTA_OBJECTS)] = []


def quota_router(app: App) -> ResourceRouter:
    """The quota of clusters (platform administrators)."""
    router = ResourceRouter(tags=["clusters"])
    clusters = app.clients.stub(rpc.ClustersServiceStub)

    @router.get("/clusters/{cluster_id}/quota")
    async def get_quota(cluster_id: str) -> Json:
        """Shows the quota that Windlass manages there, and its present use."""
        return render_quota(await clusters.GetQuota(pb.GetQuotaRequest(cluster_id=cluster_id)))

    @router.patch("/clusters/{cluster_id}/quota")
    async def change_quota(cluster_id: str, body: ChangeQuota) -> Json:
        """Puts and deletes objects, all or none."""
        request = pb.PutQuotaRequest(cluster_id=cluster_id, put=_document(body), delete=body.delete)
        return render_quota(await clusters.PutQuota(request))

    return router


def _document(body: ChangeQuota) -> pb.QuotaSpec:
    fields = body.model_dump(exclude={"delete"}, exclude_none=True)
    for one in (*fields["cohorts"], *fields["cluster_queues"]):
        one["fair_weight_millis"] = round(one.pop("fair_weight") * 1000)
    for quota in (quota for queue in fields["cluster_queues"] for quota in queue["quotas"]):
        factor = 1000 if quota["resource"] == "cpu" else 1
        for name in ("nominal", "borrowing_limit", "lending_limit"):
            if name in quota:
                quota[name] = round(quota[name] * factor)
    return json_format.ParseDict(fields, pb.QuotaSpec())


def render_quota(quota: pb.Quota) -> Json:
    """The document, in `spec` as it may be put again, and what was observed beside it."""
    queues = [render_queue(queue) for queue in quota.spec.cluster_queues]
    for queue in queues:
        queue["quotas"] = [_settable(one, ResourceQuota) for one in queue["quotas"]]
    return {
        "id": quota.cluster_id,
        **plain(quota, "cluster.quota"),
        "spec": {
            "flavors": [_settable(plain(one), Flavor) for one in quota.spec.flavors],
            "cohorts": [_settable(render_cohort(one), Cohort) for one in quota.spec.cohorts],
            "cluster_queues": [_settable(queue, ClusterQueue) for queue in queues],
        },
        "cluster_queues": [render_queue(one) for one in quota.cluster_queues],
        "cohorts": [render_cohort(one) for one in quota.cohorts],
    }


def _settable(fields: Mapping[str, Any], body: type[Body]) -> Json:
    """The fields of it that a client may set, without observed ones."""
    return {name: fields[name] for name in body.model_fields}
