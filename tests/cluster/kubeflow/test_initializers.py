"""TrainJobs of other clients from their data to their model, by Kubeflow's own initializers."""

import json
import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
from safetensors import safe_open
from tests.cluster.cluster import TestCluster
from tests.cluster.objects import initializers, runtimes
from tests.cluster.objects.runtimes import Object, container, train_job
from tests.support.environments import swift as swifts
from tests.support.factories.toy_model import make_model
from tests.support.fakes import hub as hubs

pytestmark = [pytest.mark.torch, pytest.mark.long, pytest.mark.timeout(600)]
TOKEN = "hf_of-the-gate"
WEIGHTS = "model.safetensors"
ROWS = 40
ARGS = """
    --model_name_or_path /workspace/model --dataset_name /workspace/dataset
    --output_dir /workspace/output --max_steps 4 --logging_steps 1 --learning_rate 1e-2
    --per_device_train_batch_size 4 --max_length 32 --gradient_checkpointing false
    --use_cpu true --bf16 false --save_strategy no --report_to none
"""


@dataclass
class Sources:
    """Source of data and models, at an address that pods reach."""

    hub: hubs.Hub
    # The variables of a Secret for the bucket.
    keys: dict[str, str]
    model: Path


@pytest.fixture
def sources(east: TestCluster, tmp_path: Path) -> Iterator[Sources]:
    model = make_model(tmp_path / "small")
    data = tmp_path / "greetings"
    data.mkdir()
    rows = [{"text": f"the quick brown fox greets {number} dogs"} for number in range(ROWS)]
    (data / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    repositories = {("datasets", "acme/greetings"): data, ("models", "acme/small"): model}
    with ExitStack() as stack:
        hub = stack.enter_context(hubs.running(east.host, repositories, {"acme/small": TOKEN}))
        swift = stack.enter_context(swifts.start_swift(tmp_path / "swift", east.host))
        keys = {
            "ENDPOINT": swift.url,
            "REGION": swifts.REGION,
            "ACCESS_KEY_ID": swifts.ACCESS_KEY,
            "SECRET_ACCESS_KEY": swifts.SECRET_KEY,
        }
        client = boto3.client(
            "s3",
            endpoint_url=swift.url,
            region_name=swifts.REGION,
            aws_access_key_id=swifts.ACCESS_KEY,
            aws_secret_access_key=swifts.SECRET_KEY,
        )
        client.create_bucket(Bucket="acme")
        for folder in (data, model):
            for file in folder.iterdir():
                client.upload_file(str(file), "acme", f"{folder.name}/{file.name}")
        yield Sources(hub, keys, model)


def secret(namespace: str, name: str, values: dict[str, str]) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace},
        "stringData": values,
    }


def weights(folder: Path) -> Any:
    with safe_open(folder / WEIGHTS, "pt") as file:
        return file.get_tensor("model.embed_tokens.weight")


def runtime(east: TestCluster, namespace: str) -> Object:
    """The chart's of TRL and a small model, whose pods run on this machine's programs."""
    values = {"namePrefix": f"t{secrets.token_hex(3)}", "llama3_2_1B": {"enabled": True}}
    (made,) = runtimes.rendered({"trl": values})
    container(made)["resources"] = {"requests": {"cpu": "100m"}}
    initializers.equip(made, east, east.volumes(namespace))
    east.remove_after("clustertrainingruntime", made["metadata"]["name"])
    east.apply(made)
    return made


def test_trainjobs_train_on_what_their_initializers_bring(
    east: TestCluster, sources: Sources, tmp_path: Path
) -> None:
    namespace = east.namespace()
    east.apply(
        secret(namespace, "bucket", sources.keys),
        secret(namespace, "gate", {"ACCESS_TOKEN": TOKEN}),
    )
    used = runtime(east, namespace)
    # The hub is not where the world's is.
    hub: Object = {"env": [{"name": "HF_ENDPOINT", "value": sources.hub.url}]}
    bucket: Object = {"secretRef": {"name": "bucket"}}
    gated = hub | {"secretRef": {"name": "gate"}}
    places = {
        "from-hub": (("hf", hub), ("s3", bucket)),
        "from-bucket": (("s3", bucket), ("hf", gated)),
    }
    for name, ((data, its), (model, models)) in places.items():
        runtimes.workspace(east, namespace, name, tmp_path / name)
        job = train_job(namespace, name, used, {"args": ARGS.split()})
        job["spec"]["initializer"] = {
            "dataset": {"storageUri": f"{data}://acme/greetings"} | its,
            "model": {"storageUri": f"{model}://acme/small"} | models,
        }
        east.apply(job)
    ended = ("wait", "--for=condition=Complete", "trainjobs", "--all", "-n", namespace)
    try:
        east.kubectl(*ended, "--timeout=240s")
    finally:
        print(east.kubectl("get", "pods,events", "-n", namespace, check=False))
        pods = ("-l", "jobset.sigs.k8s.io/jobset-name", "--tail=30", "--prefix")
        print(east.kubectl("logs", "-n", namespace, *pods, check=False))
    for name in places:
        volume = tmp_path / name
        assert (volume / "dataset" / "train.jsonl").read_text().count("greets") == ROWS
        assert (volume / "model" / WEIGHTS).read_bytes() == (sources.model / WEIGHTS).read_bytes()
        assert (weights(volume / "output") != weights(sources.model)).any()
    assert sources.hub.given.count(("acme/greetings", "train.jsonl")) == 1
    assert sources.hub.given.count(("acme/small", WEIGHTS)) == 1
