"""Rendering of trainers: an engine's pod with another program, and nothing that tells a secret."""

import hashlib
from typing import Any

import pytest
from tests.unit.agent.kubernetes.render.test_engine import GIB, SETTINGS, pod, rendered, workload

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.executors.kubernetes.render.engine_plan import EnginePlan, digest
from windlass_agent.executors.kubernetes.settings import ClusterSettings
from windlass_agent.kube.errors import Unrenderable

DIGEST = hashlib.sha256(b"token").digest()


def with_trainers(**changes: Any) -> ClusterSettings:
    document = SETTINGS.model_dump()
    document["engines"]["trainers"] = {"image": "runner:1", "python": "python"} | changes
    return ClusterSettings.model_validate(document)


def trainer(queue: str = "main", gpus: int = 0, **changes: Any) -> pb.Workload:
    fields: dict[str, Any] = {
        "role": "trainer", "max_rank": 32, "full": True, "processes": 1, "token_sha256": DIGEST,
    }  # fmt: skip
    process = pb.TrainerProcess(**(fields | changes))
    return workload("trainer", queue=queue, gpus=gpus, trainer=process)


def spec_of(made: pb.Workload, **changes: Any) -> dict[str, Any]:
    body = rendered(made, settings=with_trainers(**changes))
    found: dict[str, Any] = body["spec"]["template"]
    return found


def test_it_is_an_engines_pod_with_another_program() -> None:
    template = spec_of(trainer())
    (keeper,), (engine,) = template["spec"]["initContainers"], template["spec"]["containers"]
    assert engine["image"] == "runner:1"
    assert engine["command"][:3] == ["python", "-m", "windlass_agent.tuning"]
    assert {
        "--listen=127.0.0.1:8000", "--folder=/weights/models/mv-1", "--model=llama", "--full",
        "--checkpoints=/tmp/states", f"--token-sha256={DIGEST.hex()}",
    } <= set(engine["command"])  # fmt: skip
    assert keeper["command"][keeper["command"].index("--engine") + 1] == "trainer"
    usual = pod(workload())
    for name in ("securityContext", "serviceAccountName", "automountServiceAccountToken"):
        assert template["spec"][name] == usual[name]
    assert engine["securityContext"] == usual["containers"][0]["securityContext"]
    labels = template["metadata"]["labels"]
    assert labels["kueue.x-k8s.io/queue-name"] == "main"
    assert labels["windlass.dev/role"] == "trainer"
    # No pool finds it.
    assert "windlass.dev/model" not in labels
    assert "token" not in str(engine["env"]).lower()


def test_states_have_disk_and_all_that_is_trained_has_memory() -> None:
    found = {}
    for role in ("trainer", "sampler"):
        template = spec_of(trainer(role=role))
        (tmp,) = (one for one in template["spec"]["volumes"] if one["name"] == "tmp")
        memory = template["spec"]["containers"][0]["resources"]["limits"]["memory"]
        found[role] = int(tmp["emptyDir"]["sizeLimit"]), int(memory)
    # Float32 of weights of 16 bits: a state is eight times as large, and training takes ten.
    assert found["trainer"][0] >= 8 * 4 * GIB
    assert found["trainer"][1] >= 10 * 4 * GIB
    assert found["sampler"] < found["trainer"]
    (engine,) = spec_of(trainer(), memory_bytes=GIB)["spec"]["containers"]
    assert engine["resources"]["requests"]["memory"] == str(GIB)


def test_devices_come_by_a_claim() -> None:
    template = spec_of(trainer("claimed", gpus=1))
    (engine,) = template["spec"]["containers"]
    assert engine["resources"]["claims"] == [{"name": "accelerator"}]
    assert template["spec"]["resourceClaims"][0]["name"] == "accelerator"


def test_roles_go_to_nodes_of_their_own() -> None:
    pools = {"node_selectors": {"trainer": {"pool": "a"}, "sampler": {"pool": "b"}}}
    assert spec_of(trainer(), **pools)["spec"]["nodeSelector"] == {"pool": "a"}
    assert spec_of(trainer(role="sampler"), **pools)["spec"]["nodeSelector"] == {"pool": "b"}
    elsewhere = trainer()
    elsewhere.placement.node_selector["pool"] = "c"
    with pytest.raises(Unrenderable, match="pool=a, those of the project c"):
        spec_of(elsewhere, **pools)


def test_several_processes_are_torchruns() -> None:
    (engine,) = spec_of(trainer(processes=2))["spec"]["containers"]
    assert engine["command"][1:3] == ["-m", "torch.distributed.run"]
    assert "--nproc-per-node=2" in engine["command"]
    assert {"name": "GLOO_SOCKET_IFNAME", "value": "lo"} in engine["env"]


@pytest.mark.parametrize(
    "bad",
    [
        {"role": "root"},
        {"engine": "--listen=0.0.0.0:1"},
        {"processes": 0},
        {"processes": 65},
        {"max_rank": 0},
        {"token_sha256": b""},
    ],
)
def test_what_is_no_trainer_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="trainer"):
        spec_of(trainer(**bad))


def test_a_cluster_without_an_image_trains_nothing() -> None:
    with pytest.raises(Unrenderable, match="no image of the engine 'trainer'"):
        EnginePlan.of(trainer(), SETTINGS, None)


def test_another_token_is_another_pod_and_engines_stay_as_they_were() -> None:
    other = trainer(token_sha256=hashlib.sha256(b"other").digest())
    assert digest(trainer()) != digest(other)
    assert digest(workload()) == digest(workload())
