"""Kubeflow's own SDK, unmodified and with its own pins, against a cluster with our runtimes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.cluster import TestCluster
from tests.cluster.objects import runtimes
from tests.cluster.objects.runtimes import container, job_set
from tests.support.environments.required import lacking

pytestmark = pytest.mark.timeout(600)
SDK = "kubeflow==0.5.0"
# Reads what it is told from its arguments, as JSON; prints what it found.
SCRIPT = """
import json, sys
from kubeflow.trainer import (
    BuiltinTrainer, HuggingFaceDatasetInitializer, HuggingFaceModelInitializer, Initializer,
    KubernetesBackendConfig, LoraConfig, TorchTuneConfig, TorchTuneInstructDataset, TrainerClient,
    DataFormat,
)
given = json.loads(sys.argv[1])
config = KubernetesBackendConfig(config_file=given["kubeconfig"], namespace=given["namespace"])
client = TrainerClient(backend_config=config)
listed = {
    one.name: [one.trainer.trainer_type.value, one.trainer.framework, one.trainer.device_count]
    for one in client.list_runtimes()
}
tuned = client.train(
    runtime=client.get_runtime(given["torchtune"]),
    initializer=Initializer(
        dataset=HuggingFaceDatasetInitializer(storage_uri="hf://tatsu-lab/alpaca/data"),
        model=HuggingFaceModelInitializer(storage_uri="hf://Qwen/Qwen2.5-1.5B-Instruct"),
    ),
    trainer=BuiltinTrainer(
        config=TorchTuneConfig(
            epochs=1,
            batch_size=4,
            peft_config=LoraConfig(lora_rank=8),
            dataset_preprocess_config=TorchTuneInstructDataset(source=DataFormat.PARQUET),
            resources_per_node={"gpu": 1},
        )
    ),
)
plain = client.train(runtime=client.get_runtime(given["trl"]))
print(json.dumps({"listed": listed, "jobs": [tuned, plain], "state": client.get_job(tuned).status}))
"""


@pytest.fixture(scope="session")
def sdk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with the SDK in it, and nothing of ours."""
    folder = tmp_path_factory.mktemp("kubeflow")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    command = [str(python), "-m", "pip", "install", "--quiet", SDK]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lacking(f"{SDK} cannot be installed here: {done.stderr.strip()[-300:]}")
    return python


def test_it_lists_our_runtimes_and_runs_jobs_on_them(
    east: TestCluster, sdk: Path, tmp_path: Path
) -> None:
    namespace = east.namespace()
    made = runtimes.install(east)
    names = {key: item["metadata"]["name"] for key, item in made.items()}
    given = {
        "kubeconfig": str(east.kubeconfig),
        "namespace": namespace,
        "torchtune": names["torchtune", "qwen2.5-1.5b"],
        "trl": names["trl", "llama3.2-1b"],
    }
    done = subprocess.run(
        [str(sdk), "-I", "-c", SCRIPT, json.dumps(given)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    kinds = {"torchtune": "BuiltinTrainer", "trl": "CustomTrainer"}
    for (framework, _), name in names.items():
        assert said["listed"][name] == [kinds[framework], framework, "1"]
    tuned, plain = said["jobs"]
    node = container(job_set(east, namespace, tuned))
    recipe = ["lora_finetune_single_device", "--config", "qwen2_5/1.5B_lora_single_device"]
    assert node["command"][:5] == ["tune", "run", *recipe]
    assert "tokenizer.merges_file=/workspace/model/merges.txt" in node["command"]
    assert {"epochs=1", "batch_size=4", "model.lora_rank=8"} <= set(node["args"])
    assert "dataset.data_dir=/workspace/dataset/data" in node["args"]
    node = container(job_set(east, namespace, plain))
    assert node["command"] == ["torchrun", "-m", "trl.scripts.sft"]
