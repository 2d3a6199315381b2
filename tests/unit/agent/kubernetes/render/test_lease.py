"""Rendering of leases, and of trainers that join their claim: golden files and rules."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.agent.kubernetes.render.test_engine import GIB
from tests.unit.agent.kubernetes.render.test_trainer_pods import trainer, with_trainers

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.executors.kubernetes.render.engine import render
from windlass_agent.executors.kubernetes.render.engine_plan import EnginePlan, digest
from windlass_agent.executors.kubernetes.render.engine_pod import template
from windlass_agent.executors.kubernetes.render.host import resident
from windlass_agent.executors.kubernetes.render.lease import render_lease
from windlass_agent.executors.kubernetes.render.parts import ClaimHolder
from windlass_agent.executors.kubernetes.settings import ClusterSettings
from windlass_agent.keeper.host.order import require_sound_resident
from windlass_agent.kube.errors import Unrenderable

GOLDEN = Path(__file__).parent / "golden"
COVERED = frozenset({"cpu", "memory", "gpu.example.com"})
COUNTED = frozenset({"cpu", "memory", "nvidia.com/gpu"})
HOLDER = ClaimHolder("windlass-engine-lease-1-x", "u-1", "windlass-engine-lease-1-x-accel-7k")


def lease(queue: str = "claimed", namespace: str = "team-a", **changes: Any) -> pb.Workload:
    asked: dict[str, Any] = {"gpus": 1, "memory_bytes": 8 * GIB}
    return pb.Workload(
        id="lease-1", cluster_id="cl-1", project_id="proj_A", generation=3,
        desired=pb.DESIRED_STATE_RUNNING,
        placement=pb.Placement(namespace=namespace, queue=queue, priority_class="batch"),
        lease=pb.LeaseWorkload(**asked | changes),
    )  # fmt: skip


def worker() -> pb.Workload:
    made = trainer("claimed", gpus=1, lease_id="lease-1")
    made.engine.memory_bytes = 2 * GIB
    return made


def rendered(name: str) -> list[dict[str, Any]]:
    if name == "counted-lease":
        return render_lease(lease("main", gpus=2), with_trainers(), COUNTED, None)
    if name == "lease":
        return render_lease(lease(), with_trainers(), COVERED, None)
    return render(EnginePlan.of(worker(), with_trainers(), COVERED, None, HOLDER))


NAMES = ("lease", "leased-trainer", "counted-lease")


@pytest.mark.parametrize("name", NAMES)
def test_they_are_what_they_were(name: str) -> None:
    """`python -m tests.unit.agent.kubernetes.render.test_lease` writes the files anew."""
    golden = list(yaml.safe_load_all((GOLDEN / f"{name}.yaml").read_text()))
    assert json.loads(json.dumps(rendered(name))) == golden


def test_the_lease_alone_is_queued_and_asks_for_the_memory_of_all() -> None:
    (template, body), (leased,) = rendered("lease"), rendered("leased-trainer")
    queue, pod = "kueue.x-k8s.io/queue-name", body["spec"]["template"]
    assert body["metadata"]["labels"][queue] == pod["metadata"]["labels"][queue] == "claimed"
    assert template["kind"] == "ResourceClaimTemplate"
    (holder,) = pod["spec"]["containers"]
    assert holder["resources"]["requests"]["memory"] == str(8 * GIB)
    assert pod["spec"]["resourceClaims"] == [
        {"name": "accelerator", "resourceClaimTemplateName": template["metadata"]["name"]}
    ]
    # Nothing of it can be read or run by others.
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert holder["securityContext"]["readOnlyRootFilesystem"] is True
    made = leased["spec"]["template"]
    for item in (leased["metadata"], made["metadata"]):
        assert not [one for one in item["labels"] if one.startswith("kueue.x-k8s.io/")]
    assert made["spec"]["resourceClaims"] == [
        {"name": "accelerator", "resourceClaimName": HOLDER.claim}
    ]
    for container in (*made["spec"]["initContainers"], *made["spec"]["containers"]):
        assert container["resources"]["requests"]["memory"] == "0"
        assert int(container["resources"]["limits"]["memory"]) > 0
    (owner,) = leased["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Pod", HOLDER.uid)


def test_an_overlay_changes_neither_its_memory_nor_its_command() -> None:
    engine = {
        "name": "engine",
        "env": [{"name": "A", "value": "1"}],
        "resources": {"requests": {"memory": "1Mi"}, "limits": {"memory": "1Mi"}},
    }
    keeper = {"name": "keeper", "env": [{"name": "B", "value": "2"}]}
    document = with_trainers().model_dump()
    document["engines"]["overlay"] = {
        "spec": {"containers": [engine], "initContainers": [keeper], "volumes": [{"name": "v"}]}
    }
    settings = ClusterSettings.model_validate(document)
    _, body = render_lease(lease(), settings, COVERED, None)
    spec = body["spec"]["template"]["spec"]
    (holder,) = spec["containers"]
    assert holder["resources"]["limits"] == {"memory": str(8 * GIB)}
    assert {"name": "A", "value": "1"} in holder["env"]
    assert "initContainers" not in spec
    assert {"name": "v"} in spec["volumes"]


def test_a_counted_lease_is_a_pod_of_the_trainers_image_with_all_devices() -> None:
    (body,) = rendered("counted-lease")
    assert body["metadata"]["annotations"]["windlass.dev/hosts"] == "true"
    pod = body["spec"]["template"]["spec"]
    assert "resourceClaims" not in pod
    assert pod["automountServiceAccountToken"] is False
    (launcher,) = pod["containers"]
    assert launcher["image"] == "runner:1"
    assert launcher["command"][:3] == ["python", "-m", "windlass_agent.keeper.host"]
    for asked in launcher["resources"].values():
        assert asked["nvidia.com/gpu"] == "2"
        assert asked["memory"] == str(8 * GIB)
    assert launcher["securityContext"]["readOnlyRootFilesystem"] is True
    queue = "kueue.x-k8s.io/queue-name"
    assert body["spec"]["template"]["metadata"]["labels"][queue] == "main"


def test_a_resident_has_the_programs_of_a_pod_with_folders_and_ports_of_its_own() -> None:
    made = trainer("main", gpus=2, lease_id="lease-1")
    made.engine.memory_bytes = 2 * GIB
    plan = EnginePlan.of(made, with_trainers(), COUNTED, None, replace(HOLDER, claim=""))
    first, second = resident(plan, 0), resident(plan, 5)
    folder = f"/tmp/residents/{made.id}"
    assert second.command[:3] == ["python", "-m", "windlass_agent.tuning"]
    assert {
        "--listen=127.0.0.1:8005", f"--folder={folder}/weights/models/mv-1",
        f"--checkpoints={folder}/tmp/states",
    } <= set(second.command)  # fmt: skip
    words = dict(zip(second.keeper[::2], second.keeper[1::2], strict=True))
    assert (words["--port"], words["--health-port"]) == ("8448", "8085")
    assert (words["--weights"], words["--scratch"]) == (f"{folder}/weights", f"{folder}/keeper")
    assert second.environment["TMPDIR"] == f"{folder}/tmp"
    assert second.memory_bytes == 2 * GIB + 256 * 2**20
    assert second.digest == first.digest == digest(made)
    require_sound_resident(second)
    # As a pod of its own would have it.
    alone = EnginePlan.of(made, with_trainers(), COUNTED, None)
    (engine,) = template(alone)["spec"]["containers"]
    assert engine["command"][3:] != second.command[3:]
    changed = "/tmp/states", "/weights/", "127.0.0.1:8000"
    assert [one for one in engine["command"] if not any(word in one for word in changed)] == [
        one for one in second.command if not any(word in one for word in (folder, ":8005"))
    ]


def test_a_run_of_several_processes_does_not_sit_among_others() -> None:
    made = trainer("main", gpus=2, lease_id="lease-1", processes=2)
    with pytest.raises(Unrenderable, match="several processes"):
        EnginePlan.of(made, with_trainers(), COUNTED, None, replace(HOLDER, claim=""))


def test_residents_fetch_for_themselves_where_pods_share_a_claim_for_weights() -> None:
    document = with_trainers().model_dump()
    document["engines"]["weights"] = {"claim": "models"}
    settings = ClusterSettings.model_validate(document)
    made = trainer("main", gpus=2, lease_id="lease-1")
    plan = EnginePlan.of(made, settings, COUNTED, None, replace(HOLDER, claim=""))
    assert "--store" not in resident(plan, 0).keeper
    assert "/store" not in " ".join(resident(plan, 0).command)


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (lease("main"), "NoAccelerator"),
        (lease(namespace=""), "NoNamespace"),
        (lease(namespace="A b"), "BadName"),
        (lease(accelerator="H200"), "NoAccelerator"),
    ],
)
def test_what_cannot_be_shared_says_why(made: pb.Workload, reason: str) -> None:
    with pytest.raises(Unrenderable) as refused:
        render_lease(made, with_trainers(), {"cpu", "memory"}, None)
    assert refused.value.reason == reason


@pytest.mark.parametrize("bad", [{"gpus": 0}, {"gpus": 65}, {"memory_bytes": 0}])
def test_a_lease_without_bounds_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="out of bounds"):
        render_lease(lease(**bad), with_trainers(), COVERED, None)


def test_a_worker_joins_no_devices_of_another_kind_than_its_lease_has() -> None:
    counted = trainer("main", gpus=1, lease_id="lease-1")
    with pytest.raises(Unrenderable, match="devices of another accelerator"):
        EnginePlan.of(counted, with_trainers(), COUNTED, None, HOLDER)
    with pytest.raises(Unrenderable, match="devices of another accelerator"):
        EnginePlan.of(worker(), with_trainers(), COVERED, None, replace(HOLDER, claim=""))


def test_a_worker_does_not_join_without_devices() -> None:
    """It would compute on the node's processors, beside devices that were given for it."""
    without = trainer("claimed", lease_id="lease-1")
    with pytest.raises(Unrenderable, match="asks for none"):
        EnginePlan.of(without, with_trainers(), COVERED, None, HOLDER)


def test_another_size_is_another_lease() -> None:
    found = {digest(one) for one in (lease(), lease(gpus=2), lease(memory_bytes=GIB), worker())}
    assert len(found) == 4


def test_nobody_has_parts_of_several_devices() -> None:
    """The scheduler might take all of them of one device."""
    part = {"device_class": "gpu.example.com", "capacity": {"memory": "16Gi"}}
    settings = ClusterSettings.model_validate(
        with_trainers().model_dump() | {"accelerators": [part]}
    )
    template, _ = render_lease(lease(), settings, COVERED, None)
    (request,) = template["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"]["capacity"] == {"requests": {"memory": "16Gi"}}
    with pytest.raises(Unrenderable, match="A pod has a part of one"):
        render_lease(lease(gpus=2), settings, COVERED, None)


def main() -> None:
    """Writes the golden files."""
    for name in NAMES:
        text = yaml.safe_dump_all(rendered(name), sort_keys=False)
        (GOLDEN / f"{name}.yaml").write_text(text)


if __name__ == "__main__":
    main()
