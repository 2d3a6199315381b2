"""Our runtimes under the real Kubeflow Trainer: accepted, and made into JobSets."""

import os
import secrets
from pathlib import Path

import pytest
from tests.cluster.cluster import TestCluster
from tests.cluster.objects import runtimes
from tests.cluster.objects.chart import helm
from tests.cluster.objects.runtimes import MODELS, Object, container, job_set, train_job
from tests.cluster.provision import programs
from tests.support.processes import pages
from tests.support.waiting import wait_until


def environment(item: Object) -> dict[str, str]:
    found = container(item)["env"]
    return {one["name"]: one.get("value", "") for one in found}


def each(*models: str) -> pytest.MarkDecorator:
    """Every model; the files of the others differ from these models' by names alone."""
    others = [one for one in MODELS.values() if one not in models]
    later = [pytest.param(one, marks=pytest.mark.long) for one in others]
    return pytest.mark.parametrize("model", [*models, *later])


@each("llama3.2-1b")
def test_trl_becomes_a_job_set(east: TestCluster, model: str) -> None:
    namespace = east.namespace()
    runtime = runtimes.install(east)["trl", model]
    args = ["--model_name_or_path", "/workspace/model", "--dataset_name", "/workspace/dataset"]
    trainer = {"args": [*args, "--output_dir", "/workspace/output", "--max_steps", "5"]}
    east.apply(
        train_job(namespace, "as-it-is", runtime, {}),
        train_job(namespace, "told", runtime, trainer | {"numNodes": 2}),
    )
    made = job_set(east, namespace, "as-it-is")
    node = container(made)
    assert node["command"] == ["torchrun", "-m", "trl.scripts.sft"]
    assert node["args"] == container(runtime)["args"]
    assert environment(made)["PET_NNODES"] == "1"
    assert environment(made)["PET_MASTER_ADDR"] == "as-it-is-node-0-0.as-it-is"
    # Arguments replace the runtime's, and torchrun finds the other node.
    told = job_set(east, namespace, "told")
    assert container(told)["args"] == trainer["args"]
    assert environment(told)["PET_NNODES"] == "2"


@each("llama3.2-1b", "qwen2.5-1.5b")
def test_torchtune_becomes_a_job_set(east: TestCluster, model: str) -> None:
    namespace = east.namespace()
    runtime = runtimes.install(east)["torchtune", model]
    lora = ["epochs=1", "model.lora_attn_modules=[q_proj,v_proj]"]
    trainer = {"command": ["tune", "run"], "args": lora}
    east.apply(
        train_job(namespace, "as-it-is", runtime, None),
        train_job(namespace, "told", runtime, trainer),
    )
    made = job_set(east, namespace, "as-it-is")
    assert container(made)["command"] == container(runtime)["command"]
    name = runtime["metadata"]["annotations"]["windlass.dev/torchtune-model"]
    told = container(job_set(east, namespace, "told"))
    # One GPU of the runtime's: Trainer itself chooses, and keeps the runtime's paths.
    start = ["tune", "run", "lora_finetune_single_device", "--config", f"{name}_lora_single_device"]
    assert told["command"][: len(start)] == start
    assert "output_dir=/workspace/output" in told["command"]
    assert "checkpointer.checkpoint_dir=/workspace/model" in told["command"]
    assert told["args"] == lora


def test_data_come_first_and_pods_are_restricted(east: TestCluster) -> None:
    namespace = east.namespace()
    runtime = runtimes.install(east)["trl", "qwen2.5-1.5b"]
    initializer = {"dataset": {"storageUri": "s3://bucket/folder"}}
    wanted = train_job(namespace, "job", runtime, {})
    east.apply(wanted | {"spec": wanted["spec"] | {"initializer": initializer}})
    made = job_set(east, namespace, "job")
    # What the TrainJob names, and the runtime's own model.
    values = [
        {one["name"]: one["value"] for one in container(made, f"{name}-initializer")["env"]}
        for name in ("dataset", "model")
    ]
    sources = [one["STORAGE_URI"] for one in values]
    assert sources == ["s3://bucket/folder", "hf://Qwen/Qwen2.5-1.5B-Instruct"]
    claims = east.get("persistentvolumeclaims", "-n", namespace)["items"]
    assert [one["spec"]["resources"]["requests"]["storage"] for one in claims] == ["20Gi"]

    def started() -> set[str]:
        pods = east.get("pods", "-n", namespace)["items"]
        return {pod["spec"]["containers"][0]["name"] for pod in pods}

    # The namespace enforces `restricted`, and nothing trains before its data are there.
    wait_until(lambda: started() == {"dataset-initializer", "model-initializer"}, "pods are made")


def test_the_page_is_true(east: TestCluster, tmp_path: Path) -> None:
    release = east.namespace("runtimes")
    prefix = f"t{secrets.token_hex(3)}"
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "kubectl").symlink_to(east.kubectl.program)
    (tools / "helm").symlink_to(programs.program("helm"))
    environment = {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "KUBECONFIG": str(east.kubeconfig),
        "namespace": east.namespace(),
    }
    instead = {
        "deploy/helm/windlass-runtimes": f"{runtimes.CHART} --set trl.namePrefix={prefix}",
        "--install windlass-runtimes": f"--install {release}",
        "-n windlass-runtimes": f"-n {release}",
        "trl-": f"{prefix}-",
    }
    script = pages.script("how-to/use-kubeflow-runtimes.md", instead)
    try:
        said = pages.run(script, environment, tmp_path)
    finally:
        words = ("uninstall", release, "--namespace", release, "--ignore-not-found")
        helm(*words, kubeconfig=east.kubeconfig)
    assert f"{prefix}-llama3.2-1b" in said
    node = container(job_set(east, environment["namespace"], "poems"))
    assert "--max_length=1024" in node["args"]
