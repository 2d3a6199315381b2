"""Kueue's objects, as Kueue 0.16 writes them, in the contract's words."""

from typing import Any

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.kueue import reading

CLUSTER_QUEUE: dict[str, Any] = {
    "metadata": {"name": "team-a"},
    "spec": {
        "cohortName": "research",
        "fairSharing": {"weight": "1500m"},
        "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
        "resourceGroups": [
            {
                "coveredResources": ["cpu", "memory"],
                "flavors": [
                    {
                        "name": "spot",
                        "resources": [
                            {"name": "cpu", "nominalQuota": "40", "borrowingLimit": "0"},
                            {"name": "memory", "nominalQuota": "200Gi", "lendingLimit": "100Gi"},
                        ],
                    }
                ],
            }
        ],
    },
    "status": {
        "conditions": [{"type": "Active", "status": "True", "message": "Can admit new workloads"}],
        "pendingWorkloads": 3,
        "admittedWorkloads": 2,
        "flavorsReservation": [
            {
                "name": "spot",
                "resources": [
                    {"name": "cpu", "total": "50500m", "borrowed": "10500m"},
                    {"name": "memory", "total": "1Gi", "borrowed": "0"},
                ],
            }
        ],
    },
}


def test_a_cluster_queue_says_what_it_may_hold_and_what_it_holds() -> None:
    found = reading.cluster_queue(CLUSTER_QUEUE)
    assert found == pb.ClusterQueue(
        name="team-a",
        cohort="research",
        quotas=[
            pb.ResourceQuota(
                flavor="spot",
                resource="cpu",
                nominal=40_000,
                borrowing_limit=0,
                used=50_500,
                borrowed=10_500,
            ),
            pb.ResourceQuota(
                flavor="spot",
                resource="memory",
                nominal=200 << 30,
                lending_limit=100 << 30,
                used=1 << 30,
            ),
        ],
        fair_weight_millis=1500,
        reclaim_within_cohort="Any",
        within_cluster_queue="LowerPriority",
        pending=3,
        admitted=2,
        active=True,
    )
    assert found.quotas[0].HasField("borrowing_limit")
    assert not found.quotas[1].HasField("borrowing_limit")


def test_a_queue_that_admits_nothing_says_why() -> None:
    stopped = {
        "metadata": {"name": "q", "namespace": "n"},
        "spec": {"clusterQueue": "gone"},
        "status": {
            "conditions": [
                {"type": "Active", "status": "False", "message": "Can't submit new workloads"}
            ]
        },
    }
    found = reading.local_queue(stopped)
    assert (found.namespace, found.name, found.cluster_queue) == ("n", "q", "gone")
    assert (found.active, found.message) == (False, "Can't submit new workloads")
    assert not reading.cluster_queue({"metadata": {"name": "new"}, "spec": {}}).active


def test_flavors_cohorts_and_priorities() -> None:
    spec = {
        "nodeLabels": {"gpu": "h100"},
        "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
    }
    found = reading.flavor({"metadata": {"name": "h100"}, "spec": spec})
    assert found.node_labels == {"gpu": "h100"}
    assert found.tolerations == [pb.Toleration(key="gpu", operator="Exists", effect="NoSchedule")]
    groups = CLUSTER_QUEUE["spec"]["resourceGroups"]
    cohort = reading.cohort(
        {"metadata": {"name": "c"}, "spec": {"parentName": "root", "resourceGroups": groups}}
    )
    assert (cohort.parent, cohort.quotas[0].nominal) == ("root", 40_000)
    assert reading.cohort({"metadata": {"name": "plain"}}).name == "plain"
    assert reading.priority_class({"metadata": {"name": "high"}, "value": 100}).value == 100
