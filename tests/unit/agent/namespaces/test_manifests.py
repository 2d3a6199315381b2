"""Manifests of a project's namespace."""

from typing import Any

import pytest

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.kubernetes.names import BadName
from windlass_agent.executors.kubernetes.settings import ClusterSettings
from windlass_agent.namespaces import manifests
from windlass_agent.namespaces.manifests import ManifestContext

ASSIGNMENT = pb.Assignment(
    cluster_id="clu-1",
    project_id="proj_A1",
    namespace="windlass-proj-a1",
    local_queue="team-a",
    cluster_queue="gpus",
)
CONTEXT = ManifestContext(settings=ClusterSettings())


def contents(**changes: Any) -> dict[tuple[str, str], dict[str, Any]]:
    assignment = pb.Assignment()
    assignment.CopyFrom(ASSIGNMENT)
    for name, value in changes.items():
        setattr(assignment, name, value)
    found = manifests.contents(assignment, CONTEXT)
    return {(body["kind"], body["metadata"]["name"]): body for _, body in found}


def test_everything_is_in_the_namespace_and_says_whose_it_is() -> None:
    for resource, body in manifests.contents(ASSIGNMENT, CONTEXT):
        assert (body["apiVersion"], body["kind"]) == (resource.api_version, resource.kind)
        assert body["metadata"]["namespace"] == "windlass-proj-a1"
        assert body["metadata"]["labels"] == {
            "app.kubernetes.io/managed-by": "windlass",
            "windlass.dev/project": "proj_A1",
            "windlass.dev/cluster": "clu-1",
        }


def test_accounts_get_no_token_and_no_more_than_their_role() -> None:
    found = contents()
    for account in ("windlass-runner", "windlass-viewer", "windlass-editor"):
        assert found["ServiceAccount", account]["automountServiceAccountToken"] is False
    bindings = {
        name: (body["roleRef"]["kind"], body["roleRef"]["name"], body["subjects"])
        for (kind, name), body in found.items()
        if kind == "RoleBinding"
    }
    here, agents = "windlass-proj-a1", "windlass-agent"
    assert bindings == {
        "windlass-agent": (
            "ClusterRole",
            "windlass-agent-space",
            [{"kind": "ServiceAccount", "name": "windlass-agent", "namespace": agents}],
        ),
        "windlass-viewer": (
            "ClusterRole",
            "windlass-agent-viewer",
            [{"kind": "ServiceAccount", "name": "windlass-viewer", "namespace": here}],
        ),
        "windlass-editor": (
            "ClusterRole",
            "windlass-agent-editor",
            [{"kind": "ServiceAccount", "name": "windlass-editor", "namespace": here}],
        ),
    }
    # The agent's own right comes first: it makes the rest by it.
    first = next(iter(manifests.contents(ASSIGNMENT, CONTEXT)))
    assert first[1]["metadata"]["name"] == "windlass-agent"


def test_jobs_reach_the_agent_and_nobody_reaches_them() -> None:
    found = contents()
    everything = found["NetworkPolicy", "windlass-default"]["spec"]
    assert everything["policyTypes"] == ["Ingress", "Egress"]
    assert (everything["ingress"], everything["egress"]) == ([], [])
    egress = str(found["NetworkPolicy", "windlass-job"]["spec"]["egress"])
    assert "windlass-agent" in egress
    assert "8443" in egress


def test_a_cluster_without_kueue_has_no_queue() -> None:
    assert contents()["LocalQueue", "team-a"]["spec"] == {"clusterQueue": "gpus"}
    assert not [kind for kind, _ in contents(local_queue="") if kind == "LocalQueue"]


def test_the_namespace_is_restricted() -> None:
    _, made = manifests.namespace(ASSIGNMENT, made=True)
    _, adopted = manifests.namespace(ASSIGNMENT, made=False)
    for body in (made, adopted):
        labels = body["metadata"]["labels"]
        assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
        assert labels["windlass.dev/project"] == "proj_A1"
    assert made["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "windlass"
    # Or it would be deleted as one of ours.
    assert "app.kubernetes.io/managed-by" not in adopted["metadata"]["labels"]
    _, released = manifests.released("theirs")
    assert "windlass.dev/project" not in released["metadata"]["labels"]
    assert released["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


@pytest.mark.parametrize(
    "changes",
    [
        {"project_id": "a/b"},
        {"cluster_id": "x" * 64},
        {"local_queue": "../queue"},
        {"cluster_queue": "Team A"},
    ],
)
def test_what_is_no_name_reaches_no_object(changes: dict[str, str]) -> None:
    with pytest.raises(BadName):
        contents(**changes)
