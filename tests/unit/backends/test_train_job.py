from pathlib import Path
from typing import Any

import pytest

from windlass.backends import (
    BuiltinTrainer,
    HuggingFaceDatasetInitializer,
    HuggingFaceModelInitializer,
    Initializer,
    InvalidConfig,
    LoraConfig,
    RenderContext,
    S3DatasetInitializer,
    S3ModelInitializer,
    TorchTuneConfig,
    TRLConfig,
    TRLDPOConfig,
    TRLTrainerType,
)

DPO = TRLConfig(
    trainer_type=TRLTrainerType.DPO,
    dpo_config=TRLDPOConfig(beta=0.2),
    num_nodes=2,
    resources_per_node={"GPU": 4, "memory": "64Gi", "example.com/Custom-NPU": 1},
)


def test_a_torchtune_train_job() -> None:
    config = TorchTuneConfig(epochs=1, num_nodes=1, peft_config=LoraConfig(lora_rank=4))
    initializer = Initializer(
        dataset=HuggingFaceDatasetInitializer("hf://tatsu-lab/alpaca/data", access_token="t0"),
        model=HuggingFaceModelInitializer(
            "hf://meta-llama/Llama-3.2-1B", ignore_patterns=None, secret="hub"
        ),
    )
    job = BuiltinTrainer(config=config).to_train_job(
        "alpaca", runtime="torchtune-llama3.2-1b", initializer=initializer
    )
    assert job == {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "alpaca"},
        "spec": {
            "runtimeRef": {
                "apiGroup": "trainer.kubeflow.org",
                "kind": "ClusterTrainingRuntime",
                "name": "torchtune-llama3.2-1b",
            },
            "initializer": {
                "dataset": {
                    "storageUri": "hf://tatsu-lab/alpaca/data",
                    "env": [{"name": "ACCESS_TOKEN", "value": "t0"}],
                },
                "model": {
                    "storageUri": "hf://meta-llama/Llama-3.2-1B",
                    "secretRef": {"name": "hub"},
                },
            },
            "trainer": {
                "command": ["tune", "run"],
                "args": [
                    "epochs=1",
                    "dataset.data_dir=/workspace/dataset/data",
                    "model.lora_rank=4",
                    "model.lora_attn_modules=[q_proj,v_proj,output_proj]",
                ],
                "numNodes": 1,
            },
        },
    }


def test_a_trl_train_job() -> None:
    job = BuiltinTrainer(DPO).to_train_job(
        "prefer",
        runtime="trl",
        runtime_kind="TrainingRuntime",
        namespace="team-a",
        image="registry.example.com/trl:1.16.0",
        env={"HF_HUB_OFFLINE": "1"},
        labels={"kueue.x-k8s.io/queue-name": "main"},
    )
    assert job["metadata"] == {
        "name": "prefer",
        "namespace": "team-a",
        "labels": {"kueue.x-k8s.io/queue-name": "main"},
    }
    assert job["spec"]["runtimeRef"]["kind"] == "TrainingRuntime"
    assert "initializer" not in job["spec"]
    trainer = job["spec"]["trainer"]
    amounts = {"nvidia.com/gpu": 4, "memory": "64Gi", "example.com/Custom-NPU": 1}
    assert trainer == {
        "command": ["torchrun", "-m", "trl.scripts.dpo"],
        "args": DPO.to_args(),
        "image": "registry.example.com/trl:1.16.0",
        "env": [{"name": "HF_HUB_OFFLINE", "value": "1"}],
        "numNodes": 2,
        "resourcesPerNode": {"requests": amounts, "limits": amounts},
    }
    assert trainer["args"][:2] == ["--model_name_or_path", "/workspace/model"]


def test_a_trl_dataset_is_a_folder_of_the_workspace() -> None:
    def args(uri: str) -> list[str]:
        initializer = Initializer(dataset=HuggingFaceDatasetInitializer(uri))
        job = BuiltinTrainer(TRLConfig()).to_train_job(
            "j", runtime="trl", initializer=initializer, device="cpu"
        )
        found: list[str] = job["spec"]["trainer"]["args"]
        return found

    for uri, place in {
        "hf://u/r": "/workspace/dataset",
        "hf://u/r/a": "/workspace/dataset/a",
    }.items():
        given = args(uri)
        assert given[given.index("--dataset_name") + 1] == place
        assert given[given.index("--bf16") + 1] == "false"
    with pytest.raises(InvalidConfig, match="TRL loads a folder"):
        args("hf://u/r/data/train.jsonl")


def test_a_bucket_is_read_with_its_own_variables() -> None:
    bucket: dict[str, Any] = {"endpoint": "https://s3.example.com", "region": "eu"}
    initializer = Initializer(
        dataset=S3DatasetInitializer("s3://data/chat", **bucket),
        model=S3ModelInitializer("s3://models/llama"),
    )
    spec = BuiltinTrainer(TRLConfig()).to_train_job("j", runtime="trl", initializer=initializer)
    found = spec["spec"]["initializer"]
    assert found["dataset"]["env"] == [
        {"name": "ENDPOINT", "value": "https://s3.example.com"},
        {"name": "REGION", "value": "eu"},
    ]
    (patterns,) = found["model"]["env"]
    assert patterns == {"name": "IGNORE_PATTERNS", "value": "*.msgpack,*.h5,*.bin,*.pt,*.pth"}


@pytest.mark.parametrize(
    ("kind", "uri"),
    [
        (HuggingFaceDatasetInitializer, "s3://data"),
        (HuggingFaceDatasetInitializer, "hf://nobody"),
        (HuggingFaceModelInitializer, "meta-llama"),
        (S3DatasetInitializer, "hf://u/r"),
    ],
)
def test_an_address_of_another_place_is_refused(kind: Any, uri: str) -> None:
    with pytest.raises(ValueError, match="storage_uri"):
        kind(uri)


@pytest.mark.parametrize("name", ["", "Upper", "1st", "a.b", "ends-", "a" * 64])
def test_a_name_that_kubernetes_has_not_is_refused(name: str) -> None:
    with pytest.raises(InvalidConfig, match="DNS label"):
        BuiltinTrainer(TRLConfig()).to_train_job(name, runtime="trl")


@pytest.mark.parametrize(
    ("config", "field"),
    [
        (TRLConfig(trainer_type=TRLTrainerType.PPO), "trainer_type"),
        (TorchTuneConfig(num_nodes=2, peft_config=LoraConfig()), "num_nodes"),
        (TRLConfig(resources_per_node={"gpu": 1, "mig-1g.5gb": 1}), "resources_per_node"),
    ],
)
def test_what_cannot_be_trained_makes_no_object(config: Any, field: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        BuiltinTrainer(config).to_train_job("j", runtime="r")
    assert caught.value.field == field


def test_a_pod_has_kubeflows_places() -> None:
    pod = RenderContext.of_pod(nodes=2)
    assert (pod.model, pod.output) == (Path("/workspace/model"), Path("/workspace/output"))
    assert (pod.managed, pod.nodes) == (False, 2)
