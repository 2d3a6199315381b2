"""Rendering of engines on several nodes: one group of pods, of which the first has the door."""

from typing import Any

import pytest
from tests.unit.agent.kubernetes.render.test_engine import GIB, SETTINGS, workload

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.executors.kubernetes.render.engine import render
from windlass_agent.executors.kubernetes.render.engine_plan import EnginePlan, digest
from windlass_agent.kube.errors import Unrenderable

COVERED = {"cpu", "memory", "nvidia.com/gpu"}


def group(**options: Any) -> dict[str, Any]:
    made = workload(nodes=2, **options)
    body: dict[str, Any] = render(EnginePlan.of(made, SETTINGS, COVERED))[-1]
    return body


def pods(**options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The specs of the first pod and of the others."""
    templates = group(**options)["spec"]["leaderWorkerTemplate"]
    return templates["leaderTemplate"]["spec"], templates["workerTemplate"]["spec"]


def test_a_group_is_one_set_that_begins_anew_as_a_whole() -> None:
    body = group()
    assert (body["apiVersion"], body["kind"]) == (
        "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"
    )  # fmt: skip
    template = body["spec"]["leaderWorkerTemplate"]
    assert (body["spec"]["replicas"], template["size"]) == (1, 2)
    assert template["restartPolicy"] == "RecreateGroupOnPodRestart"


def test_kueue_admits_the_group_and_not_its_pods() -> None:
    body = group()
    assert body["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "main"
    assert body["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == "serving"
    for name in ("leaderTemplate", "workerTemplate"):
        labels = body["spec"]["leaderWorkerTemplate"][name]["metadata"]["labels"]
        # Kueue takes pods that have a queue of their own for no part of the group.
        assert not any("kueue" in key for key in labels)
        assert labels["windlass.dev/kind"] == "engine"


def test_the_first_pod_answers_and_the_others_only_compute() -> None:
    leader, member = pods()
    first, other = leader["containers"][0], member["containers"][0]
    assert first["command"][:3] == ["python3", "-m", "vllm.entrypoints.openai.api_server"]
    assert other["command"][:5] == [
        "python3",
        "-m",
        "vllm.entrypoints.cli.main",
        "serve",
        "--headless",
    ]
    together = {
        "--nnodes=$(LWS_GROUP_SIZE)", "--node-rank=$(LWS_WORKER_INDEX)",
        "--master-addr=$(LWS_LEADER_ADDRESS)", "--tensor-parallel-size=1",
        "--pipeline-parallel-size=2", "--distributed-executor-backend=mp",
    }  # fmt: skip
    assert together <= set(first["command"]) & set(other["command"])
    assert not any(word.startswith("--host") for word in other["command"])
    assert not any("lora" in word for word in first["command"] + other["command"])
    # Both have devices, weights and the same walls.
    assert first["resources"] == other["resources"]
    assert first["securityContext"] == other["securityContext"]
    assert first["volumeMounts"] == other["volumeMounts"]


def test_each_pod_has_a_keeper_and_one_has_a_door() -> None:
    leader, member = pods()
    (keeper,), (fetcher,) = leader["initContainers"], member["initContainers"]
    assert keeper["restartPolicy"] == fetcher["restartPolicy"] == "Always"
    assert "ports" not in fetcher
    assert "readinessProbe" not in fetcher
    assert fetcher["command"][-2:] == ["--leader", "$(LWS_LEADER_ADDRESS)"]
    assert "--leader" not in keeper["command"]
    assert fetcher["startupProbe"] == keeper["startupProbe"]
    # A pod that is ended waits for the open requests of the first, which it helps to answer.
    first, other = leader["containers"][0], member["containers"][0]
    assert other["lifecycle"] == first["lifecycle"]
    assert member["terminationGracePeriodSeconds"] == leader["terminationGracePeriodSeconds"]
    assert "livenessProbe" not in other


def test_each_pod_has_memory_for_its_part_and_disk_for_the_whole() -> None:
    for spec in pods():
        assert int(spec["containers"][0]["resources"]["limits"]["memory"]) == 6 * GIB
        (weights,) = (one for one in spec["volumes"] if one["name"] == "weights")
        assert 4 * GIB < int(weights["emptyDir"]["sizeLimit"]) < 5 * GIB, "and none for adapters"


def test_claimed_devices_come_to_each_pod_by_one_template() -> None:
    plan = EnginePlan.of(workload(queue="claimed", nodes=2), SETTINGS, {"cpu", "memory"})
    template, body = render(plan)
    assert (template["kind"], body["kind"]) == ("ResourceClaimTemplate", "LeaderWorkerSet")
    for name in ("leaderTemplate", "workerTemplate"):
        spec = body["spec"]["leaderWorkerTemplate"][name]["spec"]
        assert spec["resourceClaims"][0]["resourceClaimTemplateName"] == plan.name


def test_what_cannot_be_divided_is_refused_with_the_numbers() -> None:
    arguments = pb.EngineArguments(tensor_parallel=4)
    with pytest.raises(Unrenderable, match=r"is 4; the engine has 2 GPUs \(2 nodes with 1 each"):
        group(arguments=arguments)


def test_another_number_of_nodes_is_another_set() -> None:
    assert len({digest(workload(nodes=nodes)) for nodes in (0, 2, 3)}) == 3
