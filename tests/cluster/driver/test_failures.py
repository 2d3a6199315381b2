"""Failures provoked on a real cluster: each has a stable reason and a helpful message."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.cluster.fixtures import Clusters
from tests.cluster.objects import pods
from tests.cluster.stages.driven import MIB, Driven, driven, name_of
from tests.support.environments import postgres
from tests.support.waiting import stays, until, wait_until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.kube.resources import WORKLOADS

pytestmark = pytest.mark.asyncio(loop_scope="module")
NUMBERS = itertools.count()
DELETED = pb.DESIRED_STATE_DELETED


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(
    clusters: Clusters,
    postgres_url: str,
    schema_template: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Driven]:
    folder: Path = tmp_path_factory.mktemp("failures")
    with (
        clusters.open("east") as cluster,
        postgres.fresh_database(postgres_url, template=schema_template) as url,
    ):
        async with driven(cluster, url, folder, memory="64Gi", cpu="64") as made:
            yield made


async def ended(
    world: Driven, job: str, reason: str, *, seconds: float = 180.0, **place: Any
) -> pb.WorkloadStatus:
    """A job that ends in failure for a reason, and is then forgotten."""
    await world.put(job, **place)
    status = await world.reach(job, pb.PHASE_FAILED, reason=reason, seconds=seconds)
    await world.put(job, generation=2, desired=DELETED)
    await world.gone(job)
    return status


@pytest.mark.parametrize(
    ("word", "reason", "sentence"),
    [
        ("memory", "OutOfMemory", "more memory than the 64 MiB that it may use. Ask for more"),
        ("exit 7", "ProcessExited", "ended with 7 and no result. Its last output: exit 7."),
        ("exit 137", "ProcessKilled", "killed with code 137"),
        ("exit 3", "RunnerLost", "rejected the runner"),
        ("fail", "invalid_training_file", "Line 3."),
    ],
)
async def test_a_runner_ends(world: Driven, word: str, reason: str, sentence: str) -> None:
    job = f"ftjob-end-{word.replace(' ', '-')}"
    async with world.agent():
        await world.put(job, memory_bytes=64 * MIB)
        await world.reach(job, pb.PHASE_RUNNING)
        await until(lambda: world.desk.log(job))
        await world.tell(job, word)
        status = await ended(world, job, reason)
        assert sentence in status.message


async def test_a_job_fills_its_disk(world: Driven) -> None:
    sizes = world.document["sizes"] | {"workdir_bytes": 32 * MIB}
    async with world.agent(sizes=sizes):
        await world.put("ftjob-disk")
        await world.reach("ftjob-disk", pb.PHASE_RUNNING)
        await world.tell("ftjob-disk", "disk")
        status = await ended(world, "ftjob-disk", "StorageExceeded", seconds=240)
        assert "Keep fewer checkpoints" in status.message


@pytest.mark.parametrize(
    ("place", "reason", "sentence"),
    [
        ({"queue": "nothing"}, "QueueMissing", "LocalQueue nothing in namespace"),
        ({"namespace": "nowhere"}, "QueueMissing", "assign the project to an existing queue"),
        ({"namespace": "nowhere", "queue": ""}, "NamespaceMissing", "assign the project"),
        ({"namespace": ""}, "NoNamespace", "has no namespace"),
        ({"namespace": "../escape"}, "BadName", "is not a valid Kubernetes name"),
        ({"node_selector": {"nowhere": "x"}}, "Unschedulable", "No node can run its pod"),
    ],
    ids=str,
)
async def test_a_job_has_no_place(
    world: Driven, place: Mapping[str, Any], reason: str, sentence: str
) -> None:
    async with world.agent():
        job = f"ftjob-place-{next(NUMBERS)}"
        status = await ended(world, job, reason, **place)
        assert sentence in status.message


def _overlay(world: Driven, pod: dict[str, Any], container: dict[str, Any]) -> dict[str, Any]:
    """The overlay of the world, with more in it."""
    spec = world.document["overlay"]["spec"]
    merged = spec["containers"][0] | container
    merged["env"] = spec["containers"][0]["env"] + container.get("env", [])
    merged["volumeMounts"] = spec["containers"][0]["volumeMounts"] + container.get(
        "volumeMounts", []
    )
    volumes = spec["volumes"] + pod.pop("volumes", [])
    return {"overlay": {"spec": {**spec, **pod, "volumes": volumes, "containers": [merged]}}}


_CLAIM = {"name": "data", "persistentVolumeClaim": {"claimName": "not-there"}}
_CONFIG = {"name": "data", "configMap": {"name": "not-there"}}
_MOUNT = {"name": "data", "mountPath": "/data"}
_KEY = {"name": "KEY", "valueFrom": {"configMapKeyRef": {"name": "not-there", "key": "key"}}}


@pytest.mark.parametrize(
    ("changes", "pod", "container", "reason", "sentence"),
    [
        ({"image": "127.0.0.1:9/none:1"}, {}, {}, "ImagePullFailed", "image's name"),
        ({"image": "Not An Image"}, {}, {}, "ImagePullFailed", "image's name"),
        ({"python": "/not/there"}, {}, {}, "ContainerConfig", "pod template"),
        ({}, {}, {"env": [_KEY]}, "ContainerConfig", 'configmap "not-there" not found'),
        ({}, {"volumes": [_CLAIM]}, {"volumeMounts": [_MOUNT]}, "VolumeMissing", "not-there"),
        ({}, {"volumes": [_CONFIG]}, {"volumeMounts": [_MOUNT]}, "VolumeMissing", "not-there"),
        ({}, {"hostNetwork": True}, {}, "PodSecurity", "violates PodSecurity"),
        ({"service_account": "nobody"}, {}, {}, "SetupIncomplete", '"nobody" not found'),
        ({"deadlines": {"active": 2, "drain": 20}}, {}, {}, "DeadlineExceeded", "fewer steps"),
    ],
    ids=["no-image", "bad-image", "no-program", "no-config", "no-claim", "no-mount",
         "pod-security", "no-account", "deadline"],
)  # fmt: skip
async def test_a_pod_cannot_be(
    world: Driven,
    changes: Mapping[str, Any],
    pod: dict[str, Any],
    container: dict[str, Any],
    reason: str,
    sentence: str,
) -> None:
    async with world.agent(**changes, **_overlay(world, dict(pod), container)):
        job = f"ftjob-pod-{next(NUMBERS)}"
        status = await ended(world, job, reason)
        assert sentence in status.message
        if reason not in ("DeadlineExceeded",) and "Not An" not in str(changes) + str(pod):
            kinds = [one.key.partition("/")[2] for one in status.observations]
            assert reason in kinds or changes.get("python")


async def test_full_is_no_failure(world: Driven) -> None:
    """Kueue has room, the nodes have none: it waits, however long."""
    async with world.agent():
        await world.put("ftjob-full", memory_bytes=32 * 2**30)
        status = await world.reach("ftjob-full", pb.PHASE_PENDING, reason="Unschedulable")
        assert "No node has room for its pod now" in status.message
        # Longer than every patience.
        await stays(lambda: world.statuses["ftjob-full"].phase == pb.PHASE_PENDING, 7)
        await world.put("ftjob-full", generation=2, desired=DELETED)
        await world.reach("ftjob-full", pb.PHASE_STOPPED, generation=2)


async def test_a_queue_is_held(world: Driven) -> None:
    """An operator's own doing, so it waits until he undoes it."""
    name = f"{world.namespace}-{world.queue}"

    def hold(policy: str) -> None:
        patch = json.dumps({"spec": {"stopPolicy": policy}})
        world.cluster.kubectl("patch", "clusterqueue", name, "--type=merge", "-p", patch)

    async with world.agent():
        hold("Hold")
        try:
            await world.put("ftjob-held")
            await world.reach("ftjob-held", pb.PHASE_PENDING, reason="Queued")
            await until(lambda: "inactive" in world.statuses["ftjob-held"].message
                        or "stopped" in world.statuses["ftjob-held"].message, 20)  # fmt: skip
            await stays(lambda: world.statuses["ftjob-held"].phase == pb.PHASE_PENDING, 6)
        finally:
            hold("None")
        await world.reach("ftjob-held", pb.PHASE_RUNNING)
        await world.put("ftjob-held", generation=2, desired=DELETED)
        await world.gone("ftjob-held")


async def test_a_namespaces_quota_is_too_small_or_used_up(world: Driven) -> None:
    def quota(hard: dict[str, str]) -> None:
        metadata = {"name": "small", "namespace": world.namespace}
        world.cluster.apply(
            {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata,
             "spec": {"hard": hard}}
        )  # fmt: skip

    async with world.agent():
        try:
            quota({"requests.memory": "100Mi"})
            status = await ended(world, "ftjob-small", "QuotaExceeded")
            assert "can never hold it" in status.message
            quota({"requests.memory": "300Mi"})
            await world.put("ftjob-first")
            await world.reach("ftjob-first", pb.PHASE_RUNNING)
            await world.put("ftjob-second")
            status = await world.reach("ftjob-second", pb.PHASE_PENDING, reason="QuotaExceeded")
            assert "used up" in status.message
        finally:
            world.cluster.kubectl("delete", "resourcequota", "small", "-n", world.namespace)
        for job in ("ftjob-first", "ftjob-second"):
            await world.put(job, generation=2, desired=DELETED)
        await world.gone("ftjob-first", "ftjob-second")


async def test_an_admission_policy_refuses_the_pod(world: Driven) -> None:
    name = f"no-pods-{world.namespace}"
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
                 "resources": ["pods"]}]},
            "validations": [{"expression": "false", "message": "no pods today"}],
        },
    }  # fmt: skip
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {
            "policyName": name,
            "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": {"matchLabels": {
                "kubernetes.io/metadata.name": world.namespace}}},
        },
    }  # fmt: skip
    world.cluster.apply(policy, binding)
    try:
        # Kept by the API server in its own time.
        probe = pods.pod(world.namespace, "probe", pods.spec(world.cluster.image, ["true"]))
        words = ("create", "--dry-run=server", "-f-")
        create = partial(world.cluster.kubectl.run, *words, input=json.dumps(probe))
        await asyncio.to_thread(
            wait_until, lambda: "no pods today" in create().stderr, "the policy is in force"
        )
        async with world.agent():
            status = await ended(world, "ftjob-denied", "AdmissionDenied")
            assert "no pods today" in status.message
    finally:
        for kind in ("validatingadmissionpolicy", "validatingadmissionpolicybinding"):
            world.cluster.kubectl("delete", kind, name)


async def test_an_operator_deactivates_a_job_in_kueue(world: Driven) -> None:
    async with world.agent():
        await world.put("ftjob-off")
        await world.reach("ftjob-off", pb.PHASE_RUNNING)
        (workload,) = [
            item
            for item in await world.kube.list(WORKLOADS.path(world.namespace))
            if name_of("ftjob-off") in item["metadata"]["name"]
        ]
        patch = json.dumps({"spec": {"active": False}})
        world.cluster.kubectl(
            "patch", "workloads.kueue.x-k8s.io", workload["metadata"]["name"],
            "-n", world.namespace, "--type=merge", "-p", patch,
        )  # fmt: skip
        status = await ended(world, "ftjob-off", "Deactivated")
        assert "deactivated in Kueue" in status.message


async def test_a_node_is_drained(world: Driven) -> None:
    async with world.agent():
        await world.put("ftjob-drained")
        await world.reach("ftjob-drained", pb.PHASE_RUNNING)
        (pod,) = await world.pods("ftjob-drained")
        await world.sh(pod, "touch /work/stubborn")
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": world.namespace},
            "deleteOptions": {"gracePeriodSeconds": 1},
        }
        path = f"/api/v1/namespaces/{world.namespace}/pods/{pod}/eviction"
        world.cluster.kubectl("create", "--raw", path, "-f-", input=json.dumps(eviction))
        status = await ended(world, "ftjob-drained", "Evicted")
        assert "ended the job" in status.message
