"""Projects' namespaces and the quota in a real cluster, under the agent's own rights."""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.cluster import TestCluster
from tests.cluster.objects.chart import granted
from tests.cluster.stages.settling import Settled, seen, settled

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.kube import Forbidden, Kube, KubeError
from windlass_agent.kube.resources import (
    CLUSTERQUEUES,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    ROLEBINDINGS,
    ROLES,
    SECRETS,
    SERVICEACCOUNTS,
)


@pytest.fixture
async def here(east: TestCluster, tmp_path: Path) -> AsyncIterator[Settled]:
    rights = await asyncio.to_thread(granted, east, tmp_path)
    async with settled(east, rights) as found:
        yield found


def named(east: TestCluster, prefix: str = "space") -> str:
    """A namespace that the agent is to make."""
    name = f"{prefix}-{secrets.token_hex(3)}"
    east.remove_after("namespace", name)
    return name


def kinds(east: TestCluster, kind: str, namespace: str) -> set[str]:
    found = east.get(kind, "-n", namespace)["items"]
    return {item["metadata"]["name"] for item in found}


async def test_a_project_gets_its_namespace(east: TestCluster, here: Settled) -> None:
    name = named(east)
    quota = pb.QuotaSpec(
        flavors=[pb.ResourceFlavor(name=name)],
        cluster_queues=[
            pb.ClusterQueue(
                name=name, quotas=[pb.ResourceQuota(flavor=name, resource="cpu", nominal=1500)]
            )
        ],
    )
    place = here.assignment(name, local_queue="team", cluster_queue=name)
    status = await here.bring_about(assignments=[place], quota=quota)
    assert not status.assignment_errors, status
    assert not status.quota_error
    labels = east.get("namespace", name)["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    assert labels["windlass.dev/project"] == f"proj_{name}"
    accounts = {"default", "windlass-runner", "windlass-viewer", "windlass-editor"}
    assert kinds(east, "serviceaccounts", name) == accounts
    assert kinds(east, "networkpolicies", name) >= {"windlass-default", "windlass-job"}
    east.kubectl(
        *("wait", "--for=condition=Active", "localqueue/team", "-n", name, "--timeout=60s")
    )
    found = await here.told.until(lambda: _active(here, f"local_queue/{name}/team"))
    assert found.cluster_queue == name
    queue = here.told.items[f"cluster_queue/{name}"].cluster_queue
    assert [(one.resource, one.nominal) for one in queue.quotas] == [("cpu", 1500)]
    # Nothing is written when nothing differs.
    version = east.get("namespace", name)["metadata"]["resourceVersion"]
    await here.bring_about(assignments=[place], quota=quota)
    assert east.get("namespace", name)["metadata"]["resourceVersion"] == version
    # What is gone from the quota goes from the cluster.
    await here.bring_about(assignments=[place], quota=pb.QuotaSpec())
    await seen(lambda: not east.works("get", "clusterqueue", name), "the queue is gone")


def _active(here: Settled, key: str) -> pb.LocalQueue | None:
    item = here.told.items.get(key)
    return item.local_queue if item is not None and item.local_queue.active else None


async def test_what_somebody_changed_is_put_right(east: TestCluster, here: Settled) -> None:
    name = named(east)
    await here.bring_about(assignments=[here.assignment(name)])
    enforce = "pod-security.kubernetes.io/enforce"
    east.kubectl("label", "namespace", name, f"{enforce}=privileged", "--overwrite")
    east.kubectl("delete", "networkpolicy", "windlass-default", "-n", name)
    east.kubectl("delete", "rolebinding", "windlass-viewer", "-n", name)
    broken: dict[str, Any] = {"spec": {"egress": [{}]}}
    east.kubectl(
        *("patch", "networkpolicy", "windlass-job", "-n", name, "--type=merge"),
        *("-p", json.dumps(broken)),
    )
    await seen(
        lambda: east.get("namespace", name)["metadata"]["labels"][enforce] == "restricted",
        "pods are restricted again",
    )
    await seen(
        lambda: "windlass-default" in kinds(east, "networkpolicies", name), "the policy is back"
    )
    await seen(
        lambda: "windlass-viewer" in kinds(east, "rolebindings", name), "the binding is back"
    )
    policy = ("networkpolicy", "windlass-job", "-n", name)
    await seen(lambda: {} not in east.get(*policy)["spec"]["egress"], "egress is closed again")


async def test_a_foreign_namespace_needs_its_owners_word(east: TestCluster, here: Settled) -> None:
    theirs = east.namespace("theirs", labels={"team": "a"})
    place = here.assignment(theirs)
    status = await here.bring_about(assignments=[place])
    error = status.assignment_errors[place.project_id]
    words = error.partition("kubectl ")[2].split()
    assert words, error
    assert here.controller.accounts(theirs) is None
    # What the sentence says to do is enough; the agent looks again by itself.
    east.kubectl(*words)
    await here.told.until(lambda: not here.told.status.assignment_errors)
    labels = east.get("namespace", theirs)["metadata"]["labels"]
    assert labels["team"] == "a"
    assert "app.kubernetes.io/managed-by" not in labels
    accounts = here.controller.accounts(theirs)
    assert accounts
    assert accounts.viewer == f"system:serviceaccount:{theirs}:windlass-viewer"
    await here.bring_about(removed=[place])
    assert here.controller.accounts(theirs) is None
    await here.told.until(lambda: not here.told.status.assignment_errors)
    left = east.get("namespace", theirs)["metadata"]
    assert "deletionTimestamp" not in left
    assert "windlass.dev/project" not in left["labels"]
    assert kinds(east, "serviceaccounts", theirs) == {"default"}
    assert kinds(east, "rolebindings", theirs) == set()


async def test_one_projects_namespace_is_no_other_projects(
    east: TestCluster, here: Settled
) -> None:
    name = named(east)
    await here.bring_about(assignments=[here.assignment(name)])
    other = here.assignment(name, project_id="proj_other")
    status = await here.bring_about(assignments=[other])
    assert f"belongs to project proj_{name}" in status.assignment_errors["proj_other"]
    assert here.controller.accounts(name) is None
    status = await here.bring_about(assignments=[here.assignment("kube-system")])
    assert "belongs to the cluster" in status.assignment_errors["proj_kube-system"]


async def test_a_namespace_goes_when_nothing_lives_there(east: TestCluster, here: Settled) -> None:
    name = named(east)
    place = here.assignment(name)
    await here.bring_about(assignments=[place])
    job: dict[str, Any] = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "last", "namespace": name},
        "spec": {"suspend": True, "template": {"spec": _pod(east)}},
    }
    east.apply(job)
    status = await here.bring_about(removed=[place])
    assert "once Job last has ended" in status.assignment_errors[place.project_id]
    assert "windlass-viewer" not in kinds(east, "rolebindings", name)
    east.kubectl("delete", "job", "last", "-n", name)
    await seen(lambda: not east.works("get", "namespace", name), "the namespace is gone")
    await here.told.until(lambda: not here.told.status.assignment_errors)


async def test_a_project_whose_queue_changes_leaves_none_behind(
    east: TestCluster, here: Settled
) -> None:
    name = named(east)
    east.namespace()
    await here.bring_about(
        assignments=[here.assignment(name, local_queue="old", cluster_queue="nowhere")]
    )
    assert kinds(east, "localqueues", name) == {"old"}
    await here.bring_about(
        assignments=[here.assignment(name, local_queue="new", cluster_queue="nowhere")]
    )
    await seen(lambda: kinds(east, "localqueues", name) == {"new"}, "the old queue is gone")


async def test_quota_that_is_not_ours_stays_as_it_is(east: TestCluster, here: Settled) -> None:
    theirs = f"theirs-{secrets.token_hex(3)}"
    east.remove_after("clusterqueue", theirs)
    queue = {"apiVersion": CLUSTERQUEUES.api_version, "kind": "ClusterQueue"}
    east.apply(queue | {"metadata": {"name": theirs}, "spec": {"cohortName": "theirs"}})
    wanted = pb.QuotaSpec(cluster_queues=[pb.ClusterQueue(name=theirs, cohort="ours")])
    status = await here.bring_about(quota=wanted)
    words = status.quota_error.partition("kubectl ")[2].split()
    assert words, status
    assert east.get("clusterqueue", theirs)["spec"]["cohortName"] == "theirs"
    await here.bring_about(quota=pb.QuotaSpec())
    assert east.works("get", "clusterqueue", theirs)
    # Nor could it, whatever it is told.
    with pytest.raises(KubeError, match="no other"):
        await here.kube.delete(CLUSTERQUEUES.path(name=theirs))
    # Handed over as the sentence says, it is.
    east.kubectl(*words)
    await here.bring_about(quota=wanted)
    await here.told.until(lambda: not here.told.status.quota_error)
    assert east.get("clusterqueue", theirs)["spec"]["cohortName"] == "ours"


async def test_wrong_quota_is_said_to_be_so(east: TestCluster, here: Settled) -> None:
    name = f"odd-{secrets.token_hex(3)}"
    limited = pb.ResourceQuota(flavor=name, resource="cpu", nominal=1, borrowing_limit=1)
    quota = pb.QuotaSpec(cluster_queues=[pb.ClusterQueue(name=name, quotas=[limited])])
    status = await here.bring_about(quota=quota)
    assert f"ClusterQueue {name} was refused" in status.quota_error
    assert "borrowingLimit must be nil" in status.quota_error


async def test_the_tunnels_accounts_do_what_they_are_for(east: TestCluster, here: Settled) -> None:
    name, other = named(east), named(east)
    await here.bring_about(assignments=[here.assignment(name), here.assignment(other)])
    accounts = here.controller.accounts(name)
    assert accounts
    viewer = Kube(here.kube.access, fields={"Impersonate-User": accounts.viewer})
    extra = {"Impersonate-Extra-Windlass-User": "ann"}
    editor = Kube(here.kube.access, fields={"Impersonate-User": accounts.editor} | extra)
    async with viewer, editor:
        for kube in (viewer, editor):
            assert await kube.list(PODS.path(name)) == []
            assert await kube.list(JOBS.path(name)) == []
            for path in (
                SECRETS.path(name),
                PODS.path(other),
                PODS.path(),
                NODES.path(),
                SERVICEACCOUNTS.path(name),
                ROLEBINDINGS.path(name),
            ):
                with pytest.raises(Forbidden):
                    await kube.list(path)
            with pytest.raises(Forbidden):
                await kube.create(PODS.path(name), {"apiVersion": "v1", "kind": "Pod"})
    can = "auth", "can-i", "create", "pods", "--subresource=exec", "-n", name
    assert not east.works(*can, "--as", accounts.viewer)
    assert east.works(*can, "--as", accounts.editor)


def _pod(east: TestCluster) -> dict[str, Any]:
    return {
        "restartPolicy": "Never",
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": "a",
                "image": east.image,
                "command": ["true"],
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                },
            }
        ],
    }


# What a stolen token of the agent's may be tried for, by what it says when refused.
BINDING = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding"}
ROLE = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role"}


def bound(namespace: str, role: str, *subjects: dict[str, str]) -> dict[str, Any]:
    return BINDING | {
        "metadata": {"name": "mine", "namespace": namespace},
        "roleRef": {"apiGroup": ROLES.group, "kind": "ClusterRole", "name": role},
        "subjects": list(subjects),
    }


def space(name: str, **labels: str) -> dict[str, Any]:
    made = {"name": name, "labels": {key.replace("_", "/"): labels[key] for key in labels}}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": made}


async def test_the_agents_token_is_no_way_out(east: TestCluster, here: Settled) -> None:
    name = named(east)
    theirs = east.namespace("theirs")
    await here.bring_about(assignments=[here.assignment(name)])
    kube, agent = here.kube, _agent_of(east, name)
    own = {"kind": "ServiceAccount", "name": agent, "namespace": agent}
    attempts: list[tuple[str, Callable[[], Any]]] = [
        ("list secrets", lambda: kube.list(SECRETS.path())),
        ("read secrets of a project", lambda: kube.list(SECRETS.path(name))),
        ("read its own namespace's secrets", lambda: kube.list(SECRETS.path(agent))),
        ("make a role", lambda: kube.create(ROLES.path(name), _role(name))),
        ("be bound to cluster-admin", lambda: _bind(kube, name, "cluster-admin", own)),
        ("be bound in kube-system", lambda: _bind(kube, "kube-system", f"{agent}-space", own)),
        ("be bound in a foreign namespace", lambda: _bind(kube, theirs, f"{agent}-space", own)),
        ("give a tenant its own role", lambda: _bind(kube, name, f"{agent}-space", _default(name))),
        ("make itself an editor", lambda: _bind(kube, name, f"{agent}-editor", own)),
        ("enter pods by itself", lambda: kube.create(PODS.path(name, "x", "exec"), {})),
        ("mint a token", lambda: kube.create(SERVICEACCOUNTS.path(name, "default", "token"), {})),
        ("run a job elsewhere", lambda: kube.create(JOBS.path(theirs), _job(east, theirs))),
        ("label kube-system", lambda: _label(kube, "kube-system")),
        ("label a foreign namespace", lambda: _label(kube, theirs)),
        ("delete a foreign namespace", lambda: kube.delete(NAMESPACES.path(name=theirs))),
        ("make any namespace", lambda: kube.create(NAMESPACES.path(), space(named(east)))),
        ("free a project's pods", lambda: _unrestrict(kube, name)),
        ("take a project's namespace over", lambda: _label(kube, name, project="mine")),
    ]
    for what, attempt in attempts:
        with pytest.raises(KubeError) as refused:
            await attempt()
        assert refused.value.status in (403, 422), f"{what}: {refused.value}"
    for fields in (
        {"Impersonate-User": "admin", "Impersonate-Group": "system:masters"},
        {"Impersonate-Group": "system:masters"},
        {"Impersonate-User": "system:serviceaccount:kube-system:default"},
        {"Impersonate-User": f"system:serviceaccount:{name}:default"},
        {"Impersonate-User": f"system:serviceaccount:{theirs}:windlass-editor"},
        {
            "Impersonate-User": f"system:serviceaccount:{name}:windlass-editor",
            "Impersonate-Group": "system:masters",
        },
        {
            "Impersonate-User": f"system:serviceaccount:{name}:windlass-editor",
            "Impersonate-Extra-Scopes": "all",
        },
        {
            "Impersonate-User": f"system:serviceaccount:{name}:windlass-editor",
            "Impersonate-Uid": "1",
        },
    ):
        async with Kube(kube.access, fields=fields) as other:
            with pytest.raises(KubeError) as refused:
                await other.list(PODS.path(name))
            assert refused.value.status in (400, 403, 500), fields


def _agent_of(east: TestCluster, namespace: str) -> str:
    binding = east.get("rolebinding", "windlass-agent", "-n", namespace)
    found: str = binding["subjects"][0]["name"]
    return found


def _role(namespace: str) -> dict[str, Any]:
    rules = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]
    return ROLE | {"metadata": {"name": "mine", "namespace": namespace}, "rules": rules}


def _default(namespace: str) -> dict[str, str]:
    return {"kind": "ServiceAccount", "name": "default", "namespace": namespace}


async def _bind(kube: Kube, namespace: str, role: str, *subjects: dict[str, str]) -> Any:
    return await kube.create(ROLEBINDINGS.path(namespace), bound(namespace, role, *subjects))


def _job(east: TestCluster, namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "mine", "namespace": namespace},
        "spec": {"template": {"spec": _pod(east)}},
    }


async def _label(kube: Kube, name: str, project: str = "p") -> Any:
    labels = {
        "windlass.dev/project": project,
        "pod-security.kubernetes.io/enforce": "restricted",
        "app.kubernetes.io/managed-by": "windlass",
    }
    return await kube.patch(NAMESPACES.path(name=name), {"metadata": {"labels": labels}})


async def _unrestrict(kube: Kube, name: str) -> Any:
    labels = {"pod-security.kubernetes.io/enforce": "privileged"}
    return await kube.patch(NAMESPACES.path(name=name), {"metadata": {"labels": labels}})
