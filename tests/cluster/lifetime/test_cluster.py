"""Assumptions of the other tests: the clusters are real."""

import json
from typing import Any

import pytest
from tests.cluster.cluster import FAKE, TestCluster
from tests.cluster.kubectl import KubectlError
from tests.cluster.objects.pods import USER, job, pod, spec
from tests.support.waiting import wait_until

SMALL = {"requests": {"cpu": "100m", "memory": "32Mi"}, "limits": {"memory": "32Mi"}}
# Sleeps until told to go, since a test must see it wait and then see it end.
GATE = "until [ -e /tmp/go ]; do sleep 0.1; done"


def finish(cluster: TestCluster, namespace: str, name: str, phase: str = "Succeeded") -> str:
    """Waits for a pod's end and returns its log."""
    wait_until(lambda: state(cluster, namespace, name) == phase, f"{name} is {phase}")
    return cluster.kubectl("logs", name, "-n", namespace)


def state(cluster: TestCluster, namespace: str, name: str) -> str:
    return cluster.kubectl("get", "pod", name, "-n", namespace, "-o", "jsonpath={.status.phase}")


def waiting(cluster: TestCluster, namespace: str, queue: str) -> dict[str, int]:
    """The places of the Jobs that wait in a LocalQueue, by Kueue's visibility API."""
    path = f"/apis/visibility.kueue.x-k8s.io/v1beta2/namespaces/{namespace}"
    found = cluster.kubectl("get", "--raw", f"{path}/localqueues/{queue}/pendingworkloads")
    items: list[dict[str, Any]] = json.loads(found)["items"]
    owners = {item["metadata"]["ownerReferences"][0]["name"]: item for item in items}
    return {name: item["positionInLocalQueue"] for name, item in owners.items()}


def running(cluster: TestCluster, namespace: str) -> list[str]:
    """The names of the Jobs that Kueue has let start."""
    jobs = cluster.get("jobs", "-n", namespace)["items"]
    return [
        job["metadata"]["name"]
        for job in jobs
        if not job["spec"].get("suspend") and not job["status"].get("completionTime")
    ]


def test_pods_are_real_and_restricted(east: TestCluster) -> None:
    namespace = east.namespace()
    script = f"id -u; nc -w 5 10.96.0.1 443 </dev/null && echo api; {GATE}"
    east.apply(pod(namespace, "own", spec(east.image, ["sh", "-c", script])))
    wait_until(lambda: state(east, namespace, "own") == "Running", "the pod runs")
    east.kubectl("exec", "own", "-n", namespace, "--", "touch", "/tmp/go")
    log = finish(east, namespace, "own")
    assert log.splitlines()[:2] == [str(USER), "api"]
    with pytest.raises(KubectlError, match="violates PodSecurity"):
        east.kubectl("run", "root", "--image", east.image, "-n", namespace)


def test_a_pod_that_takes_too_much_memory_is_killed(east: TestCluster) -> None:
    namespace = east.namespace()
    east.apply(
        pod(namespace, "fat", spec(east.image, ["tail", "/dev/zero"], resources=SMALL)),
    )
    finish(east, namespace, "fat", "Failed")
    status = east.get("pod", "fat", "-n", namespace)["status"]["containerStatuses"][0]
    assert status["state"]["terminated"]["reason"] == "OOMKilled"


def test_a_quota_for_one_lets_jobs_run_one_by_one(east: TestCluster) -> None:
    namespace = east.namespace()
    queue = east.queues(namespace, cpu="100m", memory="1Gi")
    names = ["first", "second", "third"]
    for name in names:
        made = spec(east.image, ["sh", "-c", GATE], resources=SMALL)
        east.apply(job(namespace, name, made, queue=queue))
        wait_until(lambda: len(workloads(east, namespace)) > names.index(name), "Kueue sees it")  # noqa: B023
    wait_until(lambda: running(east, namespace) == ["first"], "the first is admitted")
    wait_until(
        lambda: sorted(waiting(east, namespace, queue).values()) == [0, 1],
        "the others have places",
    )
    # Of two that were made within one second Kueue may take either first.
    places = waiting(east, namespace, queue)
    assert places.keys() == {"second", "third"}
    names = ["first", *sorted(places, key=places.__getitem__)]
    messages = [
        condition["message"]
        for found in workloads(east, namespace)
        for condition in found["status"].get("conditions", [])
        if condition["type"] == "QuotaReserved" and condition["status"] == "False"
    ]
    assert len(messages) == 2
    assert all("insufficient unused quota for cpu" in message for message in messages)
    for name in names:
        wait_until(lambda: running(east, namespace) == [name], f"{name} runs alone")  # noqa: B023
        release(east, namespace, name)
        east.kubectl(
            "wait", "--for=condition=Complete", f"job/{name}", "-n", namespace, "--timeout=60s"
        )


def workloads(cluster: TestCluster, namespace: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cluster.get("workloads", "-n", namespace)["items"]
    return found


def release(cluster: TestCluster, namespace: str, name: str) -> None:
    """Lets the pod of a Job go on to its end."""
    made = ("get", "pods", "-n", namespace, "-l", f"job-name={name}", "-o", "name")
    wait_until(lambda: cluster.kubectl(*made), "its pod is there")
    path = cluster.kubectl(*made).strip()
    wait_until(
        lambda: cluster.works("exec", path, "-n", namespace, "--", "touch", "/tmp/go"), "it runs"
    )


def test_a_train_job_completes(east: TestCluster) -> None:
    namespace = east.namespace()
    queue = east.queues(namespace, cpu="1", memory="1Gi")
    template: dict[str, Any] = {
        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
        "spec": {"template": {"spec": spec(east.image, [], resources=SMALL)}},
    }
    template["spec"]["template"]["spec"]["containers"][0]["name"] = "node"
    runtime = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {"name": "shell", "namespace": namespace},
        "spec": {
            "mlPolicy": {"numNodes": 1, "torch": {}},
            "template": {"spec": {"replicatedJobs": [{"name": "node", "template": template}]}},
        },
    }
    # The policy of torch gives its variables only to a TrainJob that says how it trains.
    train = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {
            "name": "train",
            "namespace": namespace,
            "labels": {"kueue.x-k8s.io/queue-name": queue},
        },
        "spec": {
            "runtimeRef": {"name": "shell", "kind": "TrainingRuntime"},
            "trainer": {"numNodes": 2, "command": ["sh", "-c", 'echo "$PET_NNODES"']},
        },
    }
    east.apply(runtime)
    wait_until(lambda: applies(east, train), "the runtime is known")
    done = ("--for=condition=Complete", "trainjob/train", "-n", namespace, "--timeout=120s")
    east.kubectl("wait", *done)
    logs = east.kubectl("logs", "-l", "jobset.sigs.k8s.io/jobset-name=train", "-n", namespace)
    assert logs.split() == ["2", "2"]
    (admitted,) = workloads(east, namespace)
    assert admitted["metadata"]["ownerReferences"][0]["kind"] == "TrainJob"
    assert admitted["status"]["admission"]["clusterQueue"] == f"{namespace}-{queue}"


def applies(cluster: TestCluster, made: dict[str, Any]) -> bool:
    try:
        cluster.apply(made)
    except KubectlError as error:
        if "not found" not in str(error):
            raise
        return False
    return True


def test_two_nodes_of_a_job_set_know_each_other_by_name(east: TestCluster) -> None:
    namespace = east.namespace()
    script = (
        "if [ $JOB_COMPLETION_INDEX = 0 ]; then echo hello | nc -l -p 7000; else"
        " until nc pair-main-0-0.pair 7000 </dev/null; do sleep 0.1; done; fi"
    )
    main = spec(east.image, ["sh", "-c", script], resources=SMALL)
    template = {"spec": {"parallelism": 2, "completions": 2, "template": {"spec": main}}}
    pair = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "pair", "namespace": namespace},
        "spec": {"replicatedJobs": [{"name": "main", "replicas": 1, "template": template}]},
    }
    east.apply(pair)
    done = ("--for=condition=Completed", "jobset/pair", "-n", namespace, "--timeout=120s")
    east.kubectl("wait", *done)
    second = "jobset.sigs.k8s.io/jobset-name=pair,batch.kubernetes.io/job-completion-index=1"
    assert east.kubectl("logs", "-l", second, "-n", namespace).split()[-1] == "hello"


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "amd.com/gpu"])
def test_a_pod_gets_the_gpus_that_a_node_offers(east: TestCluster, resource: str) -> None:
    namespace = east.namespace()
    east.offer(resource, 2)
    wants = {"limits": {resource: "2"}}
    east.apply(pod(namespace, "gpu", spec(east.image, ["echo", "mine"], resources=wants)))
    assert finish(east, namespace, "gpu").split() == ["mine"]


def test_a_pod_gets_a_device_by_a_claim(east: TestCluster) -> None:
    namespace = east.namespace()
    request = {"name": "gpu", "exactly": {"deviceClassName": east.device_class(), "count": 1}}
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "gpu", "namespace": namespace},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }
    made = spec(east.image, ["env"], resources={"claims": [{"name": "gpu"}]})
    made["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    east.apply(template, pod(namespace, "claims", made))
    assert "GPU_DEVICE" in finish(east, namespace, "claims")


def test_a_network_policy_is_enforced(east: TestCluster) -> None:
    namespace = east.namespace()
    serve = ["sh", "-c", "while true; do echo hello | nc -l -p 7000; done"]
    server = pod(namespace, "server", spec(east.image, serve))
    server["metadata"]["labels"] = {"app": "server"}
    east.apply(server)
    wait_until(lambda: state(east, namespace, "server") == "Running", "the server runs")
    address = east.get("pod", "server", "-n", namespace)["status"]["podIP"]
    east.apply(pod(namespace, "client", spec(east.image, ["sleep", "1000"])))
    call = ("exec", "client", "-n", namespace, "--", "nc", "-w", "1", address, "7000")
    wait_until(lambda: "hello" in east.kubectl(*call, check=False), "nothing keeps the client away")
    policy = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "friends", "namespace": namespace},
        "spec": {
            "podSelector": {"matchLabels": {"app": "server"}},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "friend"}}}]}],
        },
    }
    east.apply(policy)
    wait_until(lambda: "hello" not in east.kubectl(*call, check=False), "the policy keeps it away")
    east.kubectl("label", "pod", "client", "-n", namespace, "app=friend")
    wait_until(lambda: "hello" in east.kubectl(*call, check=False), "the policy lets a friend in")


def test_torch_runs_in_a_pod_from_volumes(east: TestCluster) -> None:
    namespace = east.namespace()
    python = east.volumes(namespace)
    code = "import torch, windlass; print(int(torch.ones(3).sum()))"
    made = spec(east.image, [python.program, "-c", code])
    python.into(made)
    east.apply(pod(namespace, "torch", made))
    assert finish(east, namespace, "torch").split() == ["3"]


@pytest.mark.long
def test_two_hundred_nodes_that_only_seem_to_run_pods(east: TestCluster) -> None:
    namespace = east.namespace()
    names = east.kwok_nodes(200, {"nvidia.com/gpu": "8"})
    assert len(names) == 200
    made = spec(east.image, ["true"], resources={"limits": {"nvidia.com/gpu": "8"}})
    group = names[0].rsplit("-", 1)[0]
    made |= {"nodeSelector": {"kwok": group}, "tolerations": [FAKE]}
    fleet = job(namespace, "fleet", made)
    fleet["spec"] |= {"parallelism": 200, "completions": 200}
    east.apply(fleet)
    done = ("--for=condition=Complete", "job/fleet", "-n", namespace, "--timeout=120s")
    east.kubectl("wait", *done)


def test_two_clusters_know_nothing_of_each_other(east: TestCluster, west: TestCluster) -> None:
    namespace = east.namespace()
    assert not west.works("get", "namespace", namespace)
    assert east.api != west.api


@pytest.mark.alone
@pytest.mark.parametrize("program", ["etcd", "apiserver", "kubelet", "containerd"])
def test_a_program_that_is_killed_comes_back(east: TestCluster, program: str) -> None:
    namespace = east.namespace()
    east.apply(pod(namespace, "before", spec(east.image, ["sh", "-c", GATE])))
    wait_until(lambda: state(east, namespace, "before") == "Running", "a pod runs")
    east.restart(program)
    touch = ("exec", "before", "-n", namespace, "--", "touch", "/tmp/go")
    wait_until(lambda: east.works(*touch), "the pod still runs")
    wait_until(lambda: state(east, namespace, "before") == "Succeeded", "its end is seen")


@pytest.mark.alone
@pytest.mark.parametrize("kind", ["all", "inbound"])
def test_the_network_is_cut_and_restored(east: TestCluster, kind: str) -> None:
    """Cut for what comes in, pods still reach this machine."""
    namespace = east.namespace()
    east.apply(pod(namespace, "caller", spec(east.image, ["sleep", "1000"])))
    wait_until(lambda: state(east, namespace, "caller") == "Running", "the pod runs")
    outside = east.kubectl
    knock = ("exec", "caller", "-n", namespace, "--", "nc", "-w", "2", east.host, "9")
    with east.cut(kind):
        assert not outside.works("get", "--raw", "/readyz", "--request-timeout=2s")
        answer = east.kubectl.run(*knock).stderr
        assert ("refused" in answer) == (kind == "inbound"), answer
    assert outside.works("get", "--raw", "/readyz")


@pytest.mark.alone
def test_a_node_whose_kubelet_stops_is_lost_and_found(east: TestCluster) -> None:
    ready = ("get", "node", east.node, "-o", "jsonpath={.status.conditions[-1].status}")
    assert east.kubectl(*ready) == "True"
    east.stop("kubelet")
    wait_until(lambda: east.kubectl(*ready) == "Unknown", "the node is lost")
    east.start("kubelet")
    wait_until(lambda: east.kubectl(*ready) == "True", "the node is found")
