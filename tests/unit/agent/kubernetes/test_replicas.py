"""Replicas that may answer for each other: those that keep just the same."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.agent.kubernetes.test_tracked_engine import (
    DELETED,
    POD,
    SERVES,
    deployment,
    see,
    shown,
    told,
    workload,
)

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.keeper.v1 import keeper_pb2
from windlass_agent.executors.kubernetes.engines.replicas import ServingReplica, alike
from windlass_agent.executors.kubernetes.engines.tracked import TrackedEngine


def engine(number: int, made: pb.Workload | None = None, state: Any = SERVES) -> TrackedEngine:
    """One that serves at an address of its own."""
    made = made or workload()
    made.id = f"eng-{number}"
    found, pod = told(made), replace(POD, uid=f"u-{number}", address=f"10.0.0.{number}")
    see(found, shown(made, pod), state)
    return found


def test_the_first_is_the_engine_itself_and_failed_adapters_are_none() -> None:
    state = keeper_pb2.EngineState(phase=pb.PHASE_RUNNING)
    state.adapters.add(id="ft:a", version_id="mv-a")
    state.adapters.add(id="ft:b", version_id="mv-b", error="No room.")
    engines = [engine(1), engine(2, state=state), engine(3)]
    assert alike(engines[1], engines) == [
        ServingReplica("eng-2", "team-a", "m", "10.0.0.2", {"ft:a": "mv-a"}),
        ServingReplica("eng-1", "team-a", "m", "10.0.0.1"),
        ServingReplica("eng-3", "team-a", "m", "10.0.0.3"),
    ]


def changed(**fields: Any) -> pb.Workload:
    made = workload()
    place = fields.pop("namespace", "team-a")
    made.placement.namespace = place
    for name, value in fields.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    "other",
    [
        changed(project_id="proj_other"),
        changed(organization_id="org_other"),
        changed(namespace="team-b"),
        workload(engine="vllm"),
        workload(model="other"),
        workload(model_version_id="mv-2"),
        workload(arguments=pb.EngineArguments(context_length=8)),
        workload(nodes=2),
        workload(dedicated=True),
        workload(desired=DELETED),
    ],
    ids=[
        "project", "organization", "namespace", "kind", "model", "version", "arguments", "nodes",
        "dedicated", "leaves",
    ],
)  # fmt: skip
def test_no_other_answers_for_it(other: pb.Workload) -> None:
    own = engine(1)
    assert len(alike(own, [own, engine(2)])) == 2
    assert len(alike(own, [own, engine(2, other)])) == 1


def test_only_what_serves_and_is_as_it_should_be_answers() -> None:
    own, loading = engine(1), engine(2, state=keeper_pb2.EngineState(phase=pb.PHASE_STARTING))
    assert len(alike(own, [own, loading])) == 1
    assert not alike(loading, [own, loading])
    # Its pod is of an earlier order.
    stale, made = engine(2), workload()
    made.id = "eng-2"
    see(stale, replace(shown(made, POD), root=deployment(made, digest="older")), SERVES)
    assert len(alike(own, [own, stale])) == 1
    # Nobody has told this life of the agent what it should be.
    unknown = TrackedEngine(workload())
    see(unknown, shown(unknown.workload, POD), SERVES)
    assert not alike(unknown, [unknown, own])
