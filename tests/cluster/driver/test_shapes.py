"""Rendered objects, accepted by a real API server and run by a real kubelet."""

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from tests.cluster.cluster import TestCluster
from tests.cluster.kubectl import KubectlError
from tests.support.factories.kube_workloads import CA, Case, cases, workload
from tests.support.waiting import wait_until

from windlass_agent.executors.kubernetes.render.shapes import owned
from windlass_agent.executors.kubernetes.settings import ClusterSettings
from windlass_agent.namespaces.network import network_policies

CASES = list(cases())
ACCOUNT = {"apiVersion": "v1", "kind": "ServiceAccount"}


def account(namespace: str) -> dict[str, Any]:
    return ACCOUNT | {"metadata": {"name": "windlass-runner", "namespace": namespace}}


def placed(value: Any, namespace: str) -> Any:
    """The same objects in another namespace."""
    return json.loads(json.dumps(value).replace('"team-a"', json.dumps(namespace)))


def dry(cluster: TestCluster, item: dict[str, Any]) -> dict[str, Any]:
    """The object as the API server would make it; a KubectlError if it refuses it."""
    words = ("apply", "--server-side", "--dry-run=server", "--validate=strict", "-o", "json")
    answered: dict[str, Any] = json.loads(cluster.kubectl(*words, "-f-", input=json.dumps(item)))
    return answered


def pods_of(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, list):
        return [found for item in value for found in pods_of(item)]
    if not isinstance(value, dict):
        return []
    if "containers" in value.get("spec", {}):
        return [value]
    return [found for item in value.values() for found in pods_of(item)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_api_server_takes_each_shape(east: TestCluster, case: Case) -> None:
    """And its pods, which Pod Security `restricted` looks at only when they are made."""
    namespace = east.namespace()
    east.apply(account(namespace))
    *before, last = placed(case.render(), namespace)
    for item in before:
        dry(east, item)
        # A TrainJob's webhook looks for the runtime.
        east.apply(item)
    answered = dry(east, last)
    for field, value in last["spec"].items():
        if not isinstance(value, dict | list):
            assert answered["spec"][field] == value
    (template,) = pods_of([*before, last])
    # Whether a runtime class exists is the cluster's affair.
    template["spec"].pop("runtimeClassName", None)
    metadata = template["metadata"] | {"name": "probe", "namespace": namespace}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
    taken = dry(east, pod)
    assert [
        toleration["tolerationSeconds"]
        for toleration in taken["spec"]["tolerations"]
        if toleration["key"].startswith("node.kubernetes.io/") and "tolerationSeconds" in toleration
    ] == [30, 30]


def test_the_api_server_takes_the_network_policies(east: TestCluster) -> None:
    namespace = east.namespace()
    for policy in network_policies(namespace, ClusterSettings()):
        dry(east, policy)


class Running:
    """An attempt whose runner looks for its agent in vain, so that we can look around."""

    def __init__(
        self, cluster: TestCluster, resources: Mapping[str, str] | None = None, **settings: Any
    ) -> None:
        self.cluster = cluster
        self.namespace = cluster.namespace()
        cluster.apply(account(self.namespace))
        cluster.queues(self.namespace, cpu="4", memory="8Gi", resources=resources or {})
        self._covered = ("cpu", "memory", *(resources or {}))
        python = cluster.volumes(self.namespace)
        self._settings = settings | {
            "image": cluster.image,
            "python": python.program,
            "agent_address": "192.0.2.1:8443",
            "sizes": {
                "cpus": 0.05,
                "workdir_bytes": 2**20,
                "tmp_bytes": 2**20,
                "shm_bytes": 2**20,
            },
            "overlay": {
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "volumes": python.volumes,
                    "containers": [
                        {"name": "node", "volumeMounts": python.mounts, "env": python.env}
                    ],
                }
            },
        }

    def start(self, **wishes: Any) -> list[str]:
        """Applies it, and answers its pods once they run, by rank."""
        made = workload(namespace=self.namespace, **wishes)
        made.resources.cpus = 0
        made.resources.memory_bytes = 2**28
        case = Case("running", made, self._settings, covered=self._covered)
        wait_until(lambda: self._apply(case), "the API server took it", 60)
        count = max(1, made.job.num_nodes)
        wait_until(lambda: len(self._running()) == count, f"{count} pods run", 240)
        return self._running()

    def _apply(self, case: Case) -> bool:
        """True where it was taken; Trainer's webhook may not have heard of a new runtime yet."""
        try:
            self.cluster.apply(*case.render())
        except KubectlError as error:
            if "must be created before the TrainJob" not in str(error):
                raise
            return False
        return True

    def _running(self) -> list[str]:
        pods = self.cluster.get("pods", "-n", self.namespace, "-l", "windlass.dev/kind=job")
        index = "batch.kubernetes.io/job-completion-index"
        found = [
            (int(pod["metadata"].get("annotations", {}).get(index, 0)), pod["metadata"]["name"])
            for pod in pods["items"]
            if pod["status"]["phase"] == "Running"
        ]
        return [name for _, name in sorted(found)]

    def sh(self, pod: str, script: str, *, check: bool = True) -> str:
        words = ("exec", "-n", self.namespace, pod, "-c", "node", "--", "sh", "-c", script)
        return self.cluster.kubectl(*words, check=check)


def test_a_jobs_pod_is_what_it_should_be(east: TestCluster) -> None:
    running = Running(east)
    (pod,) = running.start()
    sh: Callable[..., str] = lambda script, **more: running.sh(pod, script, **more)  # noqa: E731
    assert sh("cat /proc/1/cmdline | tr '\\0' ' '").split()[1:5] == [
        "-m",
        "windlass_agent.runner",
        "--agent",
        "192.0.2.1:8443",
    ]
    assert sh("id -u").strip() == "10001"
    assert sh("cat /var/run/secrets/windlass/ca.crt") == CA
    claims = sh("cut -d. -f2 /var/run/secrets/windlass/token").strip()
    said = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    assert said["aud"] == ["windlass"]
    assert said["kubernetes.io"]["serviceaccount"]["name"] == "windlass-runner"
    assert said["kubernetes.io"]["pod"]["name"] == pod
    assert sh("ls /var/run/secrets/kubernetes.io", check=False) == ""
    assert sh("touch /work/x /tmp/x /dev/shm/x && echo written").strip() == "written"
    assert sh("touch /x || echo refused", check=False).strip() == "refused"
    assert "NoNewPrivs:\t1" in sh("cat /proc/1/status")
    assert "CapEff:\t0000000000000000" in sh("cat /proc/1/status")


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"several_nodes": "jobset"}, id="jobset", marks=pytest.mark.long),
        pytest.param({"several_nodes": "indexed"}, id="indexed"),
        pytest.param({"trainjob": True}, id="trainjob"),
    ],
)
def test_nodes_find_each_other(east: TestCluster, settings: dict[str, Any]) -> None:
    running = Running(east, **settings)
    pods = running.start(nodes=2)
    for rank, pod in enumerate(pods):
        lines = running.sh(pod, "env").splitlines()
        env = dict(line.split("=", 1) for line in lines if "=" in line)
        assert env["RANK"] == env["PET_NODE_RANK"] == str(rank)
        assert env["WORLD_SIZE"] == env["PET_NNODES"] == "2"
        assert env["PET_NPROC_PER_NODE"] == "1"
        assert env["MASTER_ADDR"] == env["PET_MASTER_ADDR"]
        assert env["MASTER_PORT"] == env["PET_MASTER_PORT"] == "29500"
    first = east.get("pod", pods[0], "-n", running.namespace)["status"]["podIP"]
    look = f"import socket; print(socket.gethostbyname({env['MASTER_ADDR']!r}))"
    program = running.sh(pods[1], "tr '\\0' '\\n' < /proc/1/cmdline | head -1").strip()
    found = running.sh(pods[1], f'until {program} -c "{look}" 2>/dev/null; do sleep 1; done')
    assert found.strip() == first


def test_a_trainjob_of_one_node_runs(east: TestCluster) -> None:
    running = Running(east, trainjob=True)
    (pod,) = running.start()
    assert "PET_NNODES=1" in running.sh(pod, "env")


def test_a_device_of_another_maker_is_counted_and_given(east: TestCluster) -> None:
    east.offer("amd.com/gpu", 1)
    accelerators = [{"resource": "nvidia.com/gpu"}, {"resource": "amd.com/gpu", "device": "cpu"}]
    running = Running(east, {"amd.com/gpu": "1"}, accelerators=accelerators)
    (pod,) = running.start(gpus=1)
    found = east.get("pod", pod, "-n", running.namespace)
    assert found["spec"]["containers"][0]["resources"]["limits"]["amd.com/gpu"] == "1"
    (queued,) = east.get("workloads", "-n", running.namespace)["items"]
    (assigned,) = queued["status"]["admission"]["podSetAssignments"]
    assert assigned["resourceUsage"]["amd.com/gpu"] == "1"


def test_a_claimed_device_is_in_the_pod(east: TestCluster) -> None:
    """Not counted: Kueue does so only with a feature on that is off by default."""
    claimed = {"device_class": east.device_class(), "queues": ["main"], "device": "cpu"}
    running = Running(east, accelerators=[claimed])
    (pod,) = running.start(gpus=2)
    devices = [line for line in running.sh(pod, "env").splitlines() if "GPU_DEVICE_" in line]
    assert devices
    (claim,) = east.get("resourceclaims", "-n", running.namespace)["items"]
    assert len(claim["status"]["allocation"]["devices"]["results"]) == 2


def test_an_attempts_other_objects_go_with_it(east: TestCluster) -> None:
    """Needs `owned`, as the driver applies them."""
    namespace = east.namespace()
    case = next(case for case in CASES if case.name == "job-claimed")
    claim, job = placed(case.render(), namespace)
    east.apply(claim, job)
    answered = east.get("job", job["metadata"]["name"], "-n", namespace)
    east.apply(owned(claim, answered))
    east.kubectl("delete", "job", job["metadata"]["name"], "-n", namespace)
    name = claim["metadata"]["name"]
    gone = ("get", "resourceclaimtemplate", name, "-n", namespace)
    wait_until(lambda: not east.kubectl.works(*gone), "the claim's template goes")
