"""Pods that hold devices: when a lease runs, who joins it, and what is told of it."""

from dataclasses import replace

import pytest
from tests.unit.agent.kubernetes.render.test_lease import HOLDER, lease, worker
from tests.unit.agent.kubernetes.test_tracked_engine import (
    PATIENCE,
    admitted,
    deployment,
    told,
)

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.executors.kubernetes.engines.holders import held, holder_of
from windlass_agent.executors.kubernetes.engines.observed import EngineSnapshot
from windlass_agent.executors.kubernetes.observe.snapshot import Container
from windlass_agent.executors.kubernetes.render.engine_plan import digest

ROOT = replace(
    deployment(lease()), digest=digest(lease()), project="proj_A", queue="claimed", is_lease=True
)
SHOWN = EngineSnapshot(root=ROOT, pods=(HOLDER,), admission=admitted())


def test_a_lease_runs_once_its_pod_does_and_its_claim_has_a_name() -> None:
    engine = told(lease())
    for pod in (
        replace(HOLDER, claim=""),
        replace(HOLDER, runner=None),
        replace(HOLDER, runner=Container(state="waiting")),
        replace(HOLDER, deleting=True),
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
    pod = replace(HOLDER, node="", runner=None, claim="")
    shown = replace(SHOWN, pods=(pod,), admission=admitted(yes=False))
    engine.see(shown, held(shown), clock=0, patience=PATIENCE)
    status = engine.status()
    assert (status.phase, status.reason) == (pb.PHASE_PENDING, "Queued")


def test_a_worker_joins_the_lease_of_its_own_project_alone() -> None:
    assert holder_of(worker(), SHOWN) is HOLDER
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
