"""Rendering of engines that a program of ours completes, beside upstream's image."""

from typing import Any

import pytest
from pydantic import ValidationError
from tests.unit.agent.kubernetes.render.test_engine import GIB, pod, rendered, workload

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass_agent.engines.in_pods.kinds import COMPLETED
from windlass_agent.executors.kubernetes.settings import ClusterSettings


def test_llama_cpp_s_image_runs_beside_the_program_that_completes_it() -> None:
    made = workload("llamacpp", arguments=pb.EngineArguments(context_length=512))
    spec = pod(made)
    (keeper, server), (engine,) = spec["initContainers"], spec["containers"]
    assert (keeper["name"], engine["name"]) == ("keeper", "engine")
    assert (server["name"], server["restartPolicy"]) == ("server", "Always")
    assert server["image"] == "ghcr.io/ggml-org/llama.cpp:server"
    assert server["command"][:2] == ["/bin/sh", "-c"]
    assert server["command"][3] == "/engine"
    assert engine["image"] == "runner:1"
    command = engine["command"]
    assert command[:3] == ["python", "-m", "windlass_agent.engines.llamacpp"]
    assert {
        "--program=/app/llama-server", "--neighbour", "--scratch=/engine", "--host=127.0.0.1",
        "--port=8000", "--model=/weights/models/mv-1", "--max-model-len=512", "--on-gpus",
    } <= set(command)  # fmt: skip
    # The devices and the weights' memory are the server's.
    assert server["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert "nvidia.com/gpu" not in engine["resources"]["limits"]
    assert int(server["resources"]["limits"]["memory"]) > 4 * GIB
    # It writes the weights of 4 GiB, a tensor at a time.
    assert engine["resources"]["limits"]["memory"] == str(2 * GIB + GIB // 2)
    for one in (server, engine):
        mounts = {mount["mountPath"]: mount for mount in one["volumeMounts"]}
        assert mounts["/weights"]["readOnly"]
        assert "readOnly" not in mounts["/engine"]
        assert one["securityContext"]["readOnlyRootFilesystem"]
    (shared,) = (one for one in spec["volumes"] if one["name"] == "engine")
    # The weights in its own form, and adapters.
    assert 14 * GIB < int(shared["emptyDir"]["sizeLimit"]) < 15 * GIB
    assert "server" not in {one["name"] for one in pod(workload())["initContainers"]}


def test_sglang_s_image_likewise_with_the_operator_s_flags() -> None:
    spec = pod(workload("sglang", gpus=2))
    (_, server), (engine,) = spec["initContainers"], spec["containers"]
    assert (server["image"], engine["image"]) == ("lmsysorg/sglang:v0.5.23", "agent:1")
    assert server["resources"]["limits"]["nvidia.com/gpu"] == "2"
    command = engine["command"]
    assert command[:3] == ["python3", "-m", "windlass_agent.engines.sglang"]
    assert {"--python=python3", "--neighbour", "--scratch=/engine"} <= set(command)
    assert {"--model-path=/weights/models/mv-1", "--tp-size=2", "--page-size=16"} <= set(
        command[command.index("--") :]
    )
    assert engine["resources"]["limits"]["memory"] == str(GIB // 2)
    # What SGLang compiles lies where it may write.
    assert {"name": "SGLANG_CACHE_DIR", "value": "/engine/sglang"} in server["env"]


@pytest.mark.parametrize(("kind", "written"), [("llamacpp", 4 * GIB), ("sglang", 0)])
def test_disk_is_asked_for_once_and_for_weights_that_are_written(kind: str, written: int) -> None:
    body = rendered(workload(kind), covered={"nvidia.com/gpu", "ephemeral-storage"})
    spec = body["spec"]["template"]["spec"]
    (_, server), (engine,) = spec["initContainers"], spec["containers"]
    sizes = {one["name"]: one["emptyDir"]["sizeLimit"] for one in spec["volumes"]
             if one["name"] in ("weights", "tmp", "engine")}  # fmt: skip
    adapters = int(sizes["weights"]) - 4 * GIB
    assert int(sizes["engine"]) == written + adapters
    asked = server["resources"]["requests"]["ephemeral-storage"]
    assert int(asked) == sum(map(int, sizes.values()))
    for one in engine["resources"].values():
        assert "ephemeral-storage" not in one


@pytest.mark.parametrize(
    ("weights", "vocabulary", "width"),
    [
        (988_097_824, 151_936, 896),  # Qwen2.5-0.5B
        (2_471_645_608, 128_256, 2048),  # Llama-3.2-1B
        (16_060_522_240, 128_256, 4096),  # Llama-3.1-8B
        (141_107_412_992, 128_256, 8192),  # Llama-3.1-70B
        (811_706_000_000, 128_256, 16384),  # Llama-3.1-405B
    ],
)
def test_a_completer_has_memory_for_the_largest_tensor_beside_torch(
    weights: int, vocabulary: int, width: int
) -> None:
    torch = GIB + GIB // 2
    assert COMPLETED["llamacpp"].memory_bytes(weights) > torch + 2 * vocabulary * width
    assert COMPLETED["llamacpp"].memory_bytes(weights) <= 10 * GIB
    assert COMPLETED["sglang"].memory_bytes(weights) == GIB // 2


@pytest.mark.parametrize(
    ("kind", "flag"),
    [("sglang", "--api-key=x"), ("vllm", "--model=x"), ("builtin", "--seed=7"), ("llamacpp", "-x")],
)
def test_flags_are_of_the_kind_that_takes_them(kind: str, flag: str) -> None:
    image = {"image": "i", "flags": [flag]} | ({"completer": "c"} if kind in COMPLETED else {})
    with pytest.raises(
        ValidationError, match=r"written by Windlass|not among|no flag|takes no flag"
    ):
        ClusterSettings.model_validate({"engines": {"images": {kind: image}}})


@pytest.mark.parametrize(
    "images",
    [
        {"llamacpp": {"image": "ghcr.io/ggml-org/llama.cpp:server"}},
        {"vllm": {"image": "vllm/vllm-openai:v0.32.0", "completer": "runner:1"}},
    ],
)
def test_a_completer_is_named_where_one_is_needed(images: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="a completer is for the images of llamacpp, sglang"):
        ClusterSettings.model_validate({"engines": {"images": images}})


def test_no_overlay_changes_the_command_of_a_server() -> None:
    overlay = {"spec": {"initContainers": [{"name": "server", "command": ["sh"]}]}}
    with pytest.raises(ValidationError, match="the command of server is ours"):
        ClusterSettings.model_validate({"engines": {"overlay": overlay}})
