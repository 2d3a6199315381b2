"""Ownership of namespaces, and which a project may have."""

from typing import Any

import pytest

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.namespaces import ownership
from windlass_agent.namespaces.manifests import namespace
from windlass_agent.namespaces.sentences import AssignmentRefused

ASSIGNMENT = pb.Assignment(cluster_id="c1", project_id="p1", namespace="ns")
PROJECT, ADOPT = "windlass.dev/project", "windlass.dev/adopt"


def actual(
    labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None, **more: Any
) -> dict[str, Any]:
    return {"metadata": {"name": "ns", "labels": labels, "annotations": annotations, **more}}


@pytest.mark.parametrize(
    "name",
    ["kube-system", "kube-public", "openshift-dns", "kueue-system", "default", "windlass-agent"],
)
def test_some_are_nobodys(name: str) -> None:
    with pytest.raises(AssignmentRefused, match="choose another"):
        ownership.check_name(name, "windlass-agent")
    ownership.check_name("my-kube-things", "windlass-agent")


def test_one_that_we_made_is_ours() -> None:
    _, made = namespace(ASSIGNMENT, made=True)
    assert ownership.made_by_us(ASSIGNMENT, made)
    assert ownership.is_ours(ASSIGNMENT, made)
    other_cluster = pb.Assignment(cluster_id="c2", project_id="p1", namespace="ns")
    assert not ownership.is_ours(other_cluster, made)


def test_one_that_was_handed_over_is_not_of_our_making() -> None:
    assert not ownership.made_by_us(ASSIGNMENT, actual(annotations={ADOPT: "p1"}))
    _, adopted = namespace(ASSIGNMENT, made=False)
    assert not ownership.made_by_us(ASSIGNMENT, adopted)


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (actual(), "kubectl annotate namespace ns windlass.dev/adopt=p1"),
        (actual(annotations={ADOPT: "p2"}), "kubectl annotate"),
        (actual({PROJECT: "p2"}), "belongs to project p2"),
        # Handed over to us, but it is somebody's: the owner in the cluster decides anew.
        (actual({PROJECT: "p2"}, {ADOPT: "p1"}), "belongs to project p2"),
        (actual({"app.kubernetes.io/managed-by": "windlass"}), "not Windlass's"),
        (actual({PROJECT: "p1"}, deletionTimestamp="2026-01-01T00:00:00Z"), "being deleted"),
    ],
)
def test_any_other_is_refused_and_the_owner_told_what_to_do(
    found: dict[str, Any], says: str
) -> None:
    with pytest.raises(AssignmentRefused, match=says):
        ownership.made_by_us(ASSIGNMENT, found)
