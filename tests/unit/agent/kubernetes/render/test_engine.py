"""Rendering of engines: what is in a pod, what is not, and what changes it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.models.v1 import models_pb2
from windlass.kubernetes.names import ENGINE_PREFIX, LONGEST_NAME, engine_name, is_dns_label
from windlass_agent.executors.kubernetes.engine_settings import EngineSettings
from windlass_agent.executors.kubernetes.render.engine import render
from windlass_agent.executors.kubernetes.render.engine_plan import EnginePlan, digest
from windlass_agent.executors.kubernetes.render.weights import store_claim
from windlass_agent.executors.kubernetes.settings import ClusterSettings
from windlass_agent.inventory.shapes import NodeChoice
from windlass_agent.kube.errors import Unrenderable

GIB = 2**30
SETTINGS = ClusterSettings.model_validate(
    {
        "agent_ca": "-----BEGIN CERTIFICATE-----",
        "engines": {
            "images": {
                "builtin": {"image": "runner:1", "python": "python"},
                "llamacpp": {
                    "image": "ghcr.io/ggml-org/llama.cpp:server",
                    "completer": "runner:1",
                    "python": "python",
                },
                "sglang": {
                    "image": "lmsysorg/sglang:v0.5.23",
                    "completer": "agent:1",
                    "flags": ["--page-size=16"],
                },
                "vllm": {"image": "vllm/vllm-openai:v0.32.0", "flags": ["--seed=7"]},
            },
            "priority_class": "serving",
            "priority_classes": {"high": "serving-high"},
        },
        "accelerators": [
            {"resource": "nvidia.com/gpu", "runtime_class": "nvidia"},
            {"device_class": "gpu.example.com", "queues": ["claimed"]},
        ],
    }
)


def workload(
    kind: str = "vllm", *, queue: str = "main", gpus: int = 1, **engine: Any
) -> pb.Workload:
    file = models_pb2.FileUrl(path="model.safetensors", url="https://store/secret", bytes=4 * GIB)
    spec: dict[str, Any] = {
        "engine": kind, "model": "llama", "model_version_id": "mv-1", "model_files": [file],
        "max_adapters": 4, "gpus": gpus,
    } | engine  # fmt: skip
    return pb.Workload(
        id="eng-abc", cluster_id="cl-1", project_id="proj_A", generation=3,
        placement=pb.Placement(namespace="team-a", queue=queue, priority_class="batch"),
        engine=pb.EngineWorkload(**spec),
    )  # fmt: skip


def rendered(
    made: pb.Workload, *, settings: ClusterSettings = SETTINGS, **options: Any
) -> dict[str, Any]:
    covered = options.pop("covered", {"cpu", "memory", "nvidia.com/gpu"})
    body: dict[str, Any] = render(EnginePlan.of(made, settings, covered))[-1]
    return body


def pod(made: pb.Workload) -> dict[str, Any]:
    spec: dict[str, Any] = rendered(made)["spec"]["template"]["spec"]
    return spec


def test_one_pod_with_the_keeper_first_and_the_engine_unchanged() -> None:
    body = rendered(workload())
    assert (body["kind"], body["spec"]["replicas"]) == ("Deployment", 1)
    spec = body["spec"]["template"]["spec"]
    (keeper,), (engine,) = spec["initContainers"], spec["containers"]
    assert (keeper["name"], keeper["restartPolicy"]) == ("keeper", "Always")
    assert engine["image"] == "vllm/vllm-openai:v0.32.0"
    assert engine["command"][:3] == ["python3", "-m", "vllm.entrypoints.openai.api_server"]
    assert {"--model=/weights/models/mv-1", "--seed=7"} <= set(engine["command"])
    assert {"--host=127.0.0.1", "--port=8000"} <= set(engine["command"])
    assert engine["resources"]["limits"]["nvidia.com/gpu"] == "1"
    # Every end of the pod waits for open requests.
    assert engine["lifecycle"]["preStop"]["httpGet"]["path"] == "/drained"
    assert spec["terminationGracePeriodSeconds"] == 330
    assert spec["runtimeClassName"] == "nvidia"


def test_adapters_have_the_disk_that_the_keeper_is_told_of() -> None:
    spec = pod(workload())
    command = spec["initContainers"][0]["command"]
    told = int(command[command.index("--adapter-bytes") + 1])
    (weights,) = (one for one in spec["volumes"] if one["name"] == "weights")
    # And a little, for folders and the ends of blocks.
    assert 0 < int(weights["emptyDir"]["sizeLimit"]) - 4 * GIB - told < GIB // 8


def with_claim(**weights: Any) -> ClusterSettings:
    document = SETTINGS.model_dump()
    document["engines"]["weights"] = {"claim": "weights"} | weights
    return ClusterSettings.model_validate(document)


def test_the_keeper_alone_writes_to_the_claim_that_weights_lie_in() -> None:
    spec = rendered(workload(), settings=with_claim(bytes=GIB))["spec"]["template"]["spec"]
    (claim,) = (one for one in spec["volumes"] if one["name"] == "store")
    assert claim["persistentVolumeClaim"] == {"claimName": "weights"}
    (keeper,), (engine,) = spec["initContainers"], spec["containers"]
    assert {"name": "store", "mountPath": "/store", "readOnly": True} in engine["volumeMounts"]
    assert {"name": "store", "mountPath": "/store"} in keeper["volumeMounts"]
    assert "--model=/store/mv-1" in engine["command"]
    at = keeper["command"].index("--store")
    assert keeper["command"][at : at + 4] == ["--store", "/store", "--store-bytes", str(GIB)]
    # Adapters stay in the pod, which needs no room for the weights.
    (own,) = (one for one in spec["volumes"] if one["name"] == "weights")
    assert int(own["emptyDir"]["sizeLimit"]) < 11 * GIB


def test_a_draft_lies_beside_its_model_and_has_room() -> None:
    small = models_pb2.FileUrl(path="model.safetensors", url="https://store/other", bytes=GIB)
    drafted = workload(
        arguments=pb.EngineArguments(draft_model="small", draft_tokens=4),
        draft_version_id="mv-small", draft_files=[small],
    )  # fmt: skip
    plain, found = pod(workload()), pod(drafted)
    (engine,) = found["containers"]
    assert {
        "--spec-method=draft_model", "--spec-model=/weights/models/mv-small", "--spec-tokens=4",
    } <= set(engine["command"])  # fmt: skip

    def room(spec: dict[str, Any]) -> tuple[int, int]:
        (weights,) = (one for one in spec["volumes"] if one["name"] == "weights")
        (engine,) = spec["containers"]
        return int(weights["emptyDir"]["sizeLimit"]), int(engine["resources"]["limits"]["memory"])

    assert [b - a for a, b in zip(room(plain), room(found), strict=True)] == [GIB, GIB]
    claimed = rendered(drafted, settings=with_claim())["spec"]["template"]["spec"]
    assert "--spec-model=/store/mv-small" in claimed["containers"][0]["command"]
    with pytest.raises(Unrenderable, match="Version"):
        pod(workload(draft_version_id="../x"))


def test_a_claim_is_made_only_where_its_size_is_set() -> None:
    assert store_claim(SETTINGS.engines.weights, "team-a") is None
    assert store_claim(with_claim().engines.weights, "team-a") is None
    settings = with_claim(bytes=GIB, storage_class="nfs", access_mode="ReadWriteOnce")
    made = store_claim(settings.engines.weights, "team-a") or {}
    assert made["metadata"]["namespace"] == "team-a"
    assert made["spec"] == {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": str(GIB)}},
        "storageClassName": "nfs",
    }


def test_jobs_do_not_get_the_claim() -> None:
    document = with_claim().model_dump()
    volume = {"name": "models", "persistentVolumeClaim": {"claimName": "weights"}}
    document["overlay"] = {"spec": {"volumes": [volume]}}
    with pytest.raises(ValueError, match=r"jobs may not have the claim of engines\.weights"):
        ClusterSettings.model_validate(document)


def test_an_engine_that_hangs_is_ended_soon() -> None:
    probe = pod(workload())["containers"][0]["livenessProbe"]
    assert probe["httpGet"]["path"] == "/alive"
    assert probe["terminationGracePeriodSeconds"] == 10


def test_nothing_of_a_log_gets_into_the_status_of_the_pod() -> None:
    spec = pod(workload())
    for container in (*spec["initContainers"], *spec["containers"]):
        assert container["terminationMessagePolicy"] == "File"


def test_the_pod_is_restricted_and_holds_no_secret() -> None:
    body = rendered(workload())
    spec = body["spec"]["template"]["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    for container in (*spec["initContainers"], *spec["containers"]):
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert "store/secret" not in str(body), "URLs reach the keeper alone"
    (weights,) = (one for one in spec["containers"][0]["volumeMounts"] if one["name"] == "weights")
    assert weights["readOnly"] is True
    mounted = {one["name"] for one in spec["containers"][0]["volumeMounts"]}
    assert not mounted & {"windlass", "keeper"}, "neither the token nor the door's key"


def test_kueue_admits_it_by_the_projects_queue_and_the_class_of_engines() -> None:
    body = rendered(workload())
    for labels in (body["metadata"]["labels"], body["spec"]["template"]["metadata"]["labels"]):
        assert labels["kueue.x-k8s.io/queue-name"] == "main"
        assert labels["kueue.x-k8s.io/priority-class"] == "serving"
        assert labels["windlass.dev/kind"] == "engine"
        assert "windlass.dev/attempt" not in labels, "it is no attempt of a job"
    limits = pod(workload())["containers"][0]["resources"]["limits"]
    assert "ephemeral-storage" not in limits, "its queue holds no quota for it"
    without = rendered(workload(queue=""), covered=None)
    assert "kueue.x-k8s.io/queue-name" not in without["metadata"]["labels"]


def test_memory_is_by_kind_and_weights() -> None:
    on_gpu, on_cpu = (
        int(pod(workload(gpus=gpus))["containers"][0]["resources"]["limits"]["memory"])
        for gpus in (1, 0)
    )
    assert on_gpu == 4 * GIB + 4 * GIB
    assert on_cpu == 4 * GIB + 4 * 4 * GIB
    offloading = workload(arguments=pb.EngineArguments(kv_offload_bytes=2 * GIB))
    container = pod(offloading)["containers"][0]
    assert int(container["resources"]["limits"]["memory"]) == on_gpu + 2 * GIB
    assert "--kv-offloading-size=2.0" in container["command"] + container.get("args", [])


H100 = NodeChoice("nvidia.com/gpu", {"nvidia.com/gpu.product": "H100"})


def chosen(made: pb.Workload, choice: NodeChoice | None) -> Any:
    covered = {"cpu", "memory", "nvidia.com/gpu"}
    return render(EnginePlan.of(made, SETTINGS, covered, choice))[-1]


def test_what_a_serving_needs_is_asked_of_the_cluster() -> None:
    needs: dict[str, Any] = {"accelerator": "H100", "memory_bytes": 9 * GIB, "priority": "high"}
    made = workload(**needs)
    made.placement.priority_class = ""
    body = chosen(made, H100)
    marks = body["metadata"]["labels"] | body["spec"]["template"]["metadata"]["labels"]
    assert marks["kueue.x-k8s.io/priority-class"] == "serving-high"
    spec = body["spec"]["template"]["spec"]
    assert spec["nodeSelector"] == {"nvidia.com/gpu.product": "H100"}
    resources = spec["containers"][0]["resources"]
    assert resources["limits"]["memory"] == resources["requests"]["memory"] == str(9 * GIB)
    assert resources["limits"]["nvidia.com/gpu"] == "1"
    for name, value in needs.items():
        assert digest(workload(**{name: value})) != digest(workload()), name


@pytest.mark.parametrize(
    ("usual", "assigned", "found"),
    [
        ("", "batch", ("batch", "batch", "idle")),
        ("serving", "batch", ("serving", "serving", "idle")),
        ("serving", "", ("serving", "urgent", "idle")),
        ("", "", ("", "urgent", "idle")),
    ],
)
def test_a_serving_gets_no_further_up_than_the_class_of_its_project(
    usual: str, assigned: str, found: tuple[str, ...]
) -> None:
    settings = EngineSettings.model_validate(
        {"priority_class": usual, "priority_classes": {"low": "idle", "high": "urgent"}}
    )
    of = tuple(settings.priority_class_of(name, assigned) for name in ("", "high", "low"))
    assert of == found


def test_a_project_chooses_within_the_nodes_that_it_was_given() -> None:
    made = workload(accelerator="H100")
    made.placement.node_selector.update({"pool": "a"})
    spec = chosen(made, H100)["spec"]["template"]["spec"]
    assert spec["nodeSelector"] == {"nvidia.com/gpu.product": "H100", "pool": "a"}
    with pytest.raises(Unrenderable, match="pool=b, those of the project pool=a") as refused:
        chosen(made, NodeChoice(labels={"pool": "b"}))
    assert refused.value.reason == "NoAccelerator"


@pytest.mark.parametrize(
    ("engine", "choice", "reason"),
    [
        ({"accelerator": "H100"}, None, "NoAccelerator"),
        ({"accelerator": "H100", "gpus": 0}, H100, "NoAccelerator"),
        ({"accelerator": "mig"}, NodeChoice("nvidia.com/mig-1g.10gb"), "NoAccelerator"),
        ({"accelerator": "x"}, NodeChoice(labels={"a b": "c"}), "BadName"),
        ({"priority": "low"}, None, "NoPriorityClass"),
    ],
)
def test_what_the_cluster_does_not_have_is_said(
    engine: dict[str, Any], choice: NodeChoice | None, reason: str
) -> None:
    with pytest.raises(Unrenderable) as refused:
        chosen(workload(**engine), choice)
    assert refused.value.reason == reason


def test_a_claimed_device_comes_by_a_template_of_its_own() -> None:
    plan = EnginePlan.of(workload(queue="claimed"), SETTINGS, {"cpu", "memory"})
    template, body = render(plan)
    assert template["kind"] == "ResourceClaimTemplate"
    spec = body["spec"]["template"]["spec"]
    assert spec["resourceClaims"][0]["resourceClaimTemplateName"] == plan.name
    assert spec["containers"][0]["resources"]["claims"] == [{"name": "accelerator"}]


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (workload("steam"), "NoImage"),
        (workload(queue="a b"), "BadName"),
        (workload(model_version_id="../x"), "BadName"),
        (workload(gpus=0, arguments=pb.EngineArguments(kv_offload_bytes=GIB)), "NoRoom"),
    ],
)
def test_what_cannot_be_rendered_says_why(made: pb.Workload, reason: str) -> None:
    with pytest.raises(Unrenderable) as refused:
        rendered(made)
    assert refused.value.reason == reason


def test_the_digest_changes_with_what_lasts_and_with_nothing_else() -> None:
    base = workload()
    newer = workload(adapters=[pb.AdapterSpec(id="ft:a", version_id="mv-a")], model_files=[])
    newer.generation = 9
    assert digest(base) == digest(newer)
    others = [
        workload(arguments=pb.EngineArguments(context_length=8)), workload(gpus=2),
        workload(model_version_id="mv-2"), workload(draft_version_id="mv-small"),
    ]  # fmt: skip
    assert len({digest(one) for one in (base, *others)}) == 5
    # The operator's settings apply to new pods alone.
    assert digest(workload(queue="other", max_adapters=9)) == digest(base)


@given(st.text(min_size=1, max_size=200))
def test_names_of_engines_are_labels_and_begin_alike(identifier: str) -> None:
    name = engine_name(identifier)
    assert is_dns_label(name)
    assert name.startswith(ENGINE_PREFIX)
    assert len(name) <= LONGEST_NAME


@pytest.mark.parametrize("told", [True, False])
def test_how_an_embedder_makes_vectors_is_read_of_the_list_of_its_files(told: bool) -> None:
    names = ["model.safetensors", *(["modules.json"] if told else [])]
    made = workload(
        arguments=pb.EngineArguments(task="embed"),
        model_files=[models_pb2.FileUrl(path=name, bytes=10) for name in names],
    )
    command = pod(made)["containers"][0]["command"]
    assert "--runner=pooling" in command
    assert any(word.startswith("--pooler-config") for word in command) is not told


def test_a_pool_can_select_a_models_pods_and_load_is_told_where_a_picker_may_read_it() -> None:
    made = workload()
    assert rendered(made)["spec"]["template"]["metadata"]["labels"]["windlass.dev/model"] == "llama"
    made.engine.model = "meta-llama/Llama-3"
    marks = rendered(made)["spec"]["template"]["metadata"]["labels"]
    assert is_dns_label(marks["windlass.dev/model"])
    picker = {"namespace": "team-a", "model": "meta-llama/Llama-3", "address": "epp.team-a:9002"}

    def tells(**fields: Any) -> bool:
        engines = SETTINGS.engines.model_dump() | {"pickers": [picker | fields]}
        settings = ClusterSettings.model_validate(SETTINGS.model_dump() | {"engines": engines})
        spec = rendered(made, settings=settings)["spec"]["template"]["spec"]
        return "--tell-load" in spec["initContainers"][0]["command"]

    assert tells(pods={"app": "epp"})
    assert not tells()
    assert not tells(pods={"app": "epp"}, model="other")
    assert not tells(pods={"app": "epp"}, namespace="team-b")
