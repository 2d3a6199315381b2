"""Every field of Kueue's objects that is read or written, against the pinned Kueue's CRDs."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from tests.support.factories import kueue_crds

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.kube import resources
from windlass_agent.kueue import Workload, reading, writing

SCHEMAS = kueue_crds.excerpt()
AT = "2026-01-01T00:00:00Z"
_TYPES = {"string": str, "integer": int, "boolean": bool, "array": list, "object": dict}


@pytest.mark.cluster
def test_the_excerpt_is_that_of_the_pinned_kueue() -> None:
    """`python -m tests.support.factories.kueue_crds` writes it anew."""
    schemas = kueue_crds.pinned()
    if schemas is None:
        pytest.skip(f"{kueue_crds.MODULE} is not in Go's module cache: `make cluster`")
    assert schemas == SCHEMAS


@pytest.mark.parametrize("kind", SCHEMAS)
def test_we_ask_for_what_kueue_stores(kind: str) -> None:
    (resource,) = [
        found
        for found in vars(resources).values()
        if isinstance(found, resources.Resource)
        and found.kind == kind
        and found.group == "kueue.x-k8s.io"
    ]
    assert (resource.version, resource.plural) == (kueue_crds.VERSION, kueue_crds.KINDS[kind])


class Strict(Mapping[str, Any]):
    """An object whose unknown fields cannot be asked for."""

    def __init__(self, value: dict[str, Any], schema: dict[str, Any], path: str) -> None:
        self._value = value
        self._schema = schema
        self._path = path

    def __getitem__(self, name: str) -> Any:
        assert name in self._schema["properties"], f"Kueue has no {self._path}.{name}"
        return strict(self._value[name], self._schema["properties"][name], f"{self._path}.{name}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._value)

    def __len__(self) -> int:
        return len(self._value)


def strict(value: Any, schema: dict[str, Any], path: str) -> Any:
    if isinstance(value, list):
        return [strict(item, schema["items"], f"{path}[]") for item in value]
    return Strict(value, schema, path) if "properties" in schema else value


def sample(schema: dict[str, Any]) -> Any:
    """A value with every field that the schema knows."""
    if schema.get("x-kubernetes-int-or-string"):
        return "3"
    match schema.get("type"):
        case "object" if "additionalProperties" in schema:
            return {"example": sample(schema["additionalProperties"])}
        case "object":
            return {name: sample(part) for name, part in schema.get("properties", {}).items()}
        case "array":
            return [sample(schema["items"])]
        case "string":
            return AT if schema.get("format") == "date-time" else schema.get("enum", ["x"])[-1]
        case "integer":
            return 7
        case "boolean":
            return True
    return {}


def whole(kind: str, **conditions: str) -> Strict:
    """An object of a kind with all its fields, and these conditions."""
    made = sample(SCHEMAS[kind])
    made["metadata"] = {"name": "n", "namespace": "ns", "uid": "u"}
    if conditions:
        made["status"]["conditions"] = [
            {
                "type": name,
                "status": status,
                "reason": "R",
                "message": "m",
                "lastTransitionTime": AT,
            }
            for name, status in conditions.items()
        ]
    return Strict(made, SCHEMAS[kind], kind)


def test_a_cluster_queue_is_read() -> None:
    found = reading.cluster_queue(whole("ClusterQueue", Active="False"))
    assert found == pb.ClusterQueue(
        name="n",
        cohort="x",
        quotas=[
            pb.ResourceQuota(
                flavor="x",
                resource="x",
                nominal=3,
                borrowing_limit=3,
                lending_limit=3,
                used=3,
                borrowed=3,
            )
        ],
        fair_weight_millis=3000,
        reclaim_within_cohort="Any",
        within_cluster_queue="LowerOrNewerEqualPriority",
        pending=7,
        admitted=7,
        active=False,
        message="m",
    )


def test_the_others_are_read() -> None:
    assert reading.local_queue(whole("LocalQueue", Active="True")) == pb.LocalQueue(
        namespace="ns", name="n", cluster_queue="x", pending=7, admitted=7, active=True
    )
    flavor = reading.flavor(whole("ResourceFlavor"))
    assert flavor.node_labels == {"example": "x"}
    assert [one.key for one in flavor.tolerations] == ["x"]
    cohort = reading.cohort(whole("Cohort"))
    assert (cohort.parent, cohort.fair_weight_millis, len(cohort.quotas)) == ("x", 3000, 1)
    assert reading.priority_class(whole("WorkloadPriorityClass")).value == 7


def test_a_workload_is_read() -> None:
    found = Workload.parse(
        whole("Workload", QuotaReserved="False", Evicted="True", Preempted="True")
    )
    assert (found.queue, found.priority, found.priority_class, found.active) == ("x", 7, "x", True)
    assert (found.cluster_queue, found.flavors, found.requeues) == ("x", {"example": "x"}, 7)
    assert found.waiting is not None
    assert (found.waiting.reason, found.waiting.message, found.waiting.at) == ("R", "m", AT)
    assert found.evicted is not None
    assert found.preempted is not None
    assert found.finished is None
    assert not found.admitted


def check(value: Any, schema: dict[str, Any], path: str = "") -> None:
    """As the API server would, but for CEL."""
    if schema.get("x-kubernetes-int-or-string"):
        assert isinstance(value, str | int), path
        assert re.fullmatch(schema["pattern"], str(value)), path
        return
    assert isinstance(value, _TYPES[schema["type"]]), path
    assert value in schema.get("enum", [value]), f"{path}: {value}"
    if isinstance(value, str):
        assert re.search(schema.get("pattern", ""), value), f"{path}: {value}"
        assert schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", 10**6), path
    elif isinstance(value, list):
        assert schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", 10**6), path
        for item in value:
            check(item, schema["items"], f"{path}[]")
    elif isinstance(value, dict):
        _check_fields(value, schema, path)


def _check_fields(value: dict[str, Any], schema: dict[str, Any], path: str) -> None:
    if path == ".metadata":
        return
    for name in schema.get("required", ()):
        assert name in value, f"{path}.{name} is missing"
    for name, part in value.items():
        further = schema.get("additionalProperties")
        known = schema.get("properties", {}).get(name, further)
        assert known is not None, f"Kueue has no {path}.{name}"
        check(part, known, f"{path}.{name}")


QUEUE = pb.ClusterQueue(
    name="team-a",
    cohort="research",
    quotas=[
        pb.ResourceQuota(flavor="spot", resource="cpu", nominal=1500, borrowing_limit=0),
        pb.ResourceQuota(flavor="spot", resource="memory", nominal=2**34, lending_limit=2**33),
        pb.ResourceQuota(flavor="h100", resource="nvidia.com/gpu", nominal=8),
    ],
    fair_weight_millis=1500,
    reclaim_within_cohort="Any",
    within_cluster_queue="LowerPriority",
)
TOLERATION = pb.Toleration(key="spot", operator="Equal", value="yes", effect="NoSchedule")


@pytest.mark.parametrize(
    "made",
    [
        writing.cluster_queue(QUEUE, labels={"windlass.dev/cluster": "c"}),
        writing.cluster_queue(pb.ClusterQueue(name="bare")),
        writing.cohort(
            pb.Cohort(
                name="research", parent="all", fair_weight_millis=2000, quotas=QUEUE.quotas[:1]
            )
        ),
        writing.cohort(pb.Cohort(name="bare")),
        writing.flavor(
            pb.ResourceFlavor(name="spot", node_labels={"a": "b"}, tolerations=[TOLERATION])
        ),
        writing.flavor(pb.ResourceFlavor(name="bare")),
        writing.local_queue(pb.LocalQueue(namespace="team-a", name="main", cluster_queue="team-a")),
        writing.priority_class(pb.PriorityClass(name="urgent", value=1000)),
    ],
    ids=lambda made: f"{made['kind']}-{made['metadata']['name']}",
)
def test_what_is_written_fits_the_schema(made: dict[str, Any]) -> None:
    assert made["apiVersion"] == f"kueue.x-k8s.io/{kueue_crds.VERSION}"
    check(made, SCHEMAS[made["kind"]])


def test_what_is_written_reads_the_same() -> None:
    """But for what Kueue alone says: whether it is active."""
    assert reading.cluster_queue(writing.cluster_queue(QUEUE)) == QUEUE


def test_a_patch_of_active_fits_the_schema() -> None:
    check({"active": False}, SCHEMAS["Workload"]["properties"]["spec"])
