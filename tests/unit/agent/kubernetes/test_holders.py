"""Pods that hold devices: when a lease runs, who joins it, and what is told of it."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.agent.kubernetes.render.test_lease import HOLDER, lease, worker
from tests.unit.agent.kubernetes.test_tracked_engine import (
    PATIENCE,
    POD,
    admitted,
    deployment,
    told,
)

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.executors.kubernetes.engines.holders import held, holder_of
from windlass_agent.executors.kubernetes.engines.launching import EngineLauncher
from windlass_agent.executors.kubernetes.engines.observed import (
    EngineSnapshot,
    trim_deployment,
    trim_pod,
)
from windlass_agent.executors.kubernetes.observe.snapshot import Container
from windlass_agent.executors.kubernetes.render.engine_plan import digest
from windlass_agent.kube.resources import DEPLOYMENTS

ROOT = replace(
    deployment(lease()), digest=digest(lease()), project="proj_A", queue="claimed", is_lease=True
)
SITTING = replace(POD, name=HOLDER.name, uid=HOLDER.uid, claim=HOLDER.claim)
SHOWN = EngineSnapshot(root=ROOT, pods=(SITTING,), admission=admitted())


def test_a_lease_runs_once_its_pod_does_and_its_claim_has_a_name() -> None:
    engine = told(lease())
    for pod in (
        replace(SITTING, claim=""),
        replace(SITTING, runner=None),
        replace(SITTING, runner=Container(state="waiting")),
        replace(SITTING, deleting=True),
    ):
        shown = replace(SHOWN, pods=(pod,))
        engine.see(shown, held(shown), clock=0, patience=PATIENCE)
        assert engine.status().phase != pb.PHASE_RUNNING
        assert holder_of(worker(), shown) is None
    engine.see(SHOWN, held(SHOWN), clock=0, patience=PATIENCE)
    status = engine.status()
    # Nobody sends it requests.
    assert (status.phase, status.endpoint, engine.serves) == (pb.PHASE_RUNNING, "", False)


def test_a_lease_that_waits_in_its_queue_says_so() -> None:
    engine = told(lease())
    pod = replace(SITTING, node="", runner=None, claim="")
    shown = replace(SHOWN, pods=(pod,), admission=admitted(yes=False))
    engine.see(shown, held(shown), clock=0, patience=PATIENCE)
    status = engine.status()
    assert (status.phase, status.reason) == (pb.PHASE_PENDING, "Queued")


async def test_a_worker_waits_for_its_lease_before_anything_is_made() -> None:
    nothing: Any = None
    launcher = EngineLauncher(nothing, nothing, nothing, nothing)
    found = await launcher.apply(worker(), None)
    assert found is not None
    assert (found.phase, found.reason, found.patience) == (pb.PHASE_PENDING, "NoLease", "setup")


def test_a_worker_joins_the_lease_of_its_own_project_alone() -> None:
    assert holder_of(worker(), SHOWN) == HOLDER
    for root in (
        replace(ROOT, project="proj_B"),
        replace(ROOT, namespace="team-b"),
        replace(ROOT, is_lease=False),
        replace(ROOT, deleting=True),
    ):
        assert holder_of(worker(), replace(SHOWN, root=root)) is None


@pytest.mark.parametrize("name", ["lease-2", ""])
def test_the_digest_of_a_worker_is_of_its_lease(name: str) -> None:
    other = worker()
    other.engine.trainer.lease_id = name
    assert digest(other) != digest(worker())


def test_the_names_of_its_claim_and_its_role_are_read_from_the_cluster() -> None:
    marks = {"windlass.dev/workload": "lease-1", "windlass.dev/role": "lease"}
    metadata = {"name": "n", "namespace": "team-a", "uid": "u", "labels": marks}
    claims = [
        {"name": "volume", "resourceClaimName": "another"},
        {"name": "accelerator", "resourceClaimName": "n-accelerator-x7"},
    ]
    pod = trim_pod({"metadata": metadata, "status": {"resourceClaimStatuses": claims}})
    root = trim_deployment(DEPLOYMENTS, {"metadata": metadata})
    assert pod is not None
    assert root is not None
    assert (pod.claim, root.is_lease) == ("n-accelerator-x7", True)
    # Before Kubernetes has made it, the name is null.
    early = {"resourceClaimStatuses": [{"name": "accelerator"}]}
    found = trim_pod({"metadata": metadata, "status": early})
    assert found is not None
    assert found.claim == ""
