"""Pod templates that may run in another cluster."""

import json
from typing import Any

import pytest

from windlass.federation.admission import AdmittedSpec, SpecRefused, admit

CAPABLE = {"capabilities": {"add": ["SYS_ADMIN"]}}


def container(**fields: Any) -> dict[str, Any]:
    return {"name": "main", "image": "busybox", **fields}


def job(pod: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """A plain Job as an API server completes it."""
    labels = {"app": "mine", "controller-uid": "u", "batch.kubernetes.io/job-name": "hello"}
    own = {"restartPolicy": "Never", "schedulerName": "default-scheduler"}
    spec = {"containers": [container()], **own}
    return {
        "managedBy": "windlass.dev/federation",
        "parallelism": 1,
        "completions": 1,
        "backoffLimit": 6,
        "suspend": False,
        "manualSelector": False,
        "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}},
        "template": {
            "metadata": {"labels": labels, "creationTimestamp": None},
            "spec": spec | {"dnsPolicy": "ClusterFirst", "securityContext": {}} | (pod or {}),
        },
        **fields,
    }


def admitted(spec: dict[str, Any], kind: str = "Job") -> AdmittedSpec:
    return admit(kind, json.dumps(spec).encode())


def test_a_plain_job_passes_without_what_its_own_cluster_added() -> None:
    spec = admitted(job(ttlSecondsAfterFinished=60)).spec
    assert spec.keys() == {"parallelism", "completions", "backoffLimit", "template"}
    assert spec["template"]["metadata"] == {"labels": {"app": "mine"}, "annotations": {}}
    pod = spec["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert pod["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }


def secret(**source: Any) -> dict[str, Any]:
    return {"containers": [container(env=[{"name": "A", "valueFrom": source}])]}


@pytest.mark.parametrize(
    ("pod", "named"),
    [
        ({"serviceAccountName": "windlass-runner"}, "serviceAccountName"),
        ({"automountServiceAccountToken": True}, "automountServiceAccountToken"),
        ({"nodeName": "node-1"}, "nodeName"),
        ({"priorityClassName": "system-node-critical"}, "priorityClassName"),
        ({"runtimeClassName": "kata"}, "runtimeClassName"),
        ({"hostNetwork": True}, "hostNetwork"),
        ({"hostPID": True}, "hostPID"),
        ({"imagePullSecrets": [{"name": "s"}]}, "imagePullSecrets"),
        ({"schedulerName": "mine"}, "schedulerName"),
        ({"resourceClaims": [{"name": "gpu"}]}, "resourceClaims"),
        ({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}, "volumes[0].hostPath"),
        ({"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}, "volumes[0].secret"),
        ({"volumes": [{"name": "v", "projected": {"sources": []}}]}, "volumes[0].projected"),
        (
            {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
            "volumes[0].persistentVolumeClaim",
        ),
        (secret(secretKeyRef={"name": "s", "key": "k"}), "env[0].valueFrom.secretKeyRef"),
        (secret(configMapKeyRef={"name": "s", "key": "k"}), "env[0].valueFrom.configMapKeyRef"),
        ({"containers": [container(envFrom=[{"secretRef": {"name": "s"}}])]}, "envFrom"),
        ({"containers": [container(volumeDevices=[{"name": "v"}])]}, "volumeDevices"),
        ({"containers": [container(ports=[{"hostPort": 80}])]}, "ports[0].hostPort"),
        ({"containers": [container(securityContext={"privileged": True})]}, "privileges"),
        ({"containers": [container(securityContext={"runAsUser": 0})]}, "root"),
        ({"securityContext": {"runAsNonRoot": False}}, "root"),
        ({"securityContext": {"sysctls": [{"name": "a"}]}}, "securityContext.sysctls"),
        ({"securityContext": {"seccompProfile": {"type": "Unconfined"}}}, "seccompProfile"),
        (
            {"initContainers": [container(securityContext=CAPABLE)]},
            "initContainers[0].securityContext.capabilities.add",
        ),
        ({"tolerations": [{"operator": "Exists"}]}, "tolerations[0].key"),
        (
            {"tolerations": [{"key": "node-role.kubernetes.io/control-plane"}]},
            "tolerations[0].key",
        ),
        ({"containers": ["main"]}, "containers must be a list"),
        ({"a-field-of-tomorrow": 1}, "a-field-of-tomorrow"),
    ],
)  # fmt: skip
def test_what_is_not_known_to_be_harmless_is_refused_by_its_field(
    pod: dict[str, Any], named: str
) -> None:
    with pytest.raises(SpecRefused) as refused:
        admitted(job(pod))
    assert named in str(refused.value)


@pytest.mark.parametrize("key", ["windlass.dev/workload", "kueue.x-k8s.io/queue-name"])
def test_nobody_labels_a_pod_as_ours(key: str) -> None:
    spec = job()
    spec["template"]["metadata"]["labels"][key] = "ftjob-1"
    with pytest.raises(SpecRefused, match="is reserved for Windlass"):
        admitted(spec)


def test_a_field_of_a_job_that_is_not_known_is_refused() -> None:
    with pytest.raises(SpecRefused, match=r"spec\.tomorrow"):
        admitted(job(tomorrow=1))
    with pytest.raises(SpecRefused, match="larger than"):
        admitted({})


@pytest.mark.parametrize("amount", ["-4", "-1Gi", "much", "9" * 5000, None])
def test_what_is_no_amount_takes_nothing_away(amount: object) -> None:
    odd = container(resources={"requests": {"cpu": amount}})
    pod = {"containers": [odd, container(resources={"requests": {"cpu": 2}})]}
    assert admitted(job(pod)).resources.cpus == 2


def test_what_its_pods_take_is_summed_up() -> None:
    limits = {"nvidia.com/gpu": 2, "memory": "1Gi", "cpu": "1500m"}
    pod = {"containers": [container(resources={"limits": limits, "requests": {"cpu": "250m"}})]}
    found = admitted(job(pod, parallelism=3)).resources
    assert (found.gpus, found.memory_bytes, found.cpus) == (6, 3 * 2**30, 1)
    jobs = [
        {"name": "a", "replicas": 2, "template": {"spec": job(pod)}},
        {"name": "b", "template": {"spec": job(pod)}},
    ]
    whole = admitted({"managedBy": "windlass.dev/federation", "replicatedJobs": jobs}, "JobSet")
    assert whole.resources.gpus == 6
    template = whole.spec["replicatedJobs"][0]["template"]["spec"]["template"]
    assert template["spec"]["automountServiceAccountToken"] is False


def test_a_job_set_is_held_to_the_same() -> None:
    inner = job({"nodeName": "node-1"})
    spec = {"replicatedJobs": [{"name": "a", "template": {"spec": inner}}]}
    with pytest.raises(SpecRefused, match=r"replicatedJobs\[0\]\.template\.spec.*nodeName"):
        admitted(spec, "JobSet")
    with pytest.raises(SpecRefused, match="parallelism"):
        admitted(job(parallelism=10**6))
