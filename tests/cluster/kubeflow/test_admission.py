"""The chart's webhook in its pod, and what the real API server and Trainer make of TrainJobs."""

import copy
import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.cluster.cluster import RESTRICTED, TestCluster
from tests.cluster.fixtures import Clusters
from tests.cluster.kubectl import KubectlError
from tests.cluster.objects import runtimes
from tests.cluster.objects.chart import helm
from tests.cluster.objects.runtimes import FRAMEWORK, Object, container, job_set, train_job
from tests.support.waiting import wait_until

from windlass.backends import BuiltinTrainer, LLMBackend, TorchTuneConfig, TRLConfig

MARK = "windlass.test/admission"
LORA = "model.lora_attn_modules=[q_proj,v_proj]"


@dataclass
class Site:
    """A release of the chart that looks at the namespaces marked as this test's."""

    cluster: TestCluster
    mark: str
    # The account of a Windlass' agent.
    agent: str
    runtimes: dict[str, Object]

    def namespace(self, *, watched: bool = True) -> str:
        mark = {MARK: self.mark} if watched else {}
        return self.cluster.namespace(labels=RESTRICTED | mark)

    def made(self, job: Object) -> Object:
        """A TrainJob as the API server keeps it."""
        self.cluster.apply(job)
        return self.read(job)

    def read(self, job: Object) -> Object:
        metadata = job["metadata"]
        return self.cluster.get("trainjob", metadata["name"], "-n", metadata["namespace"])

    def refused(self, *words: str, given: Object | None = None) -> str:
        """The refusal that kubectl prints."""
        with pytest.raises(KubectlError) as caught:
            self.cluster.kubectl(*words, input=json.dumps(given) if given else "")
        return str(caught.value)

    def denied(self, job: Object) -> str:
        return self.refused("create", "-f-", given=job)

    def runtime(self, framework: str, name: str, of: str) -> Object:
        """Another runtime, like one of the chart's."""
        copied = copy.deepcopy(self.runtimes[of])
        self.put(copied, framework, name)
        return copied

    def put(self, runtime: Object, framework: str, name: str) -> None:
        """Makes it a runtime of a framework, of a name that begins so."""
        unique = f"{name}-{secrets.token_hex(3)}"
        runtime["metadata"] |= {"name": unique, "labels": {FRAMEWORK: framework}}
        self.cluster.remove_after("clustertrainingruntime", unique)
        self.cluster.apply(runtime)


@pytest.fixture(scope="module")
def site(clusters: Clusters) -> Iterator[Site]:
    with clusters.open("east") as east:
        mark = secrets.token_hex(4)
        release = east.namespace("admission", labels=RESTRICTED | {MARK: mark})
        python = east.volumes(release)
        part = secrets.token_hex(3)
        values = {
            framework: {
                "namePrefix": f"{framework}{part}",
                "llama3_2_1B": {"enabled": True},
                "qwen2_5_1_5B": {"enabled": True},
            }
            for framework in runtimes.FRAMEWORKS
        }
        agent = f"system:serviceaccount:{release}:windlass-agent"
        admission = {
            "enabled": True,
            "agents": [agent],
            "replicas": 1,
            "namespaceSelector": {"matchLabels": {MARK: mark}},
            "image": {"repository": "windlass.local/busybox", "tag": "1", "pullPolicy": "Never"},
            "command": [python.program, "-m", "windlass_agent.admission"],
            "extraVolumes": python.volumes,
            "extraVolumeMounts": python.mounts,
            "extraEnv": python.env,
            "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}},
        }
        words = ("upgrade", "--install", release, str(runtimes.CHART), "--namespace", release)
        try:
            for _ in range(2):
                # Again: an upgrade keeps the certificate that the first one made.
                helm(
                    *words, "--wait", "--timeout=180s",
                    values=values | {"admission": admission}, kubeconfig=east.kubeconfig,
                )  # fmt: skip
            found = {
                f"{framework} {model}": east.get(
                    "clustertrainingruntime", f"{framework}{part}-{model}"
                )
                for framework in runtimes.FRAMEWORKS
                for model in ("llama3.2-1b", "qwen2.5-1.5b")
            }
            for item in found.values():
                item["metadata"] = {
                    key: item["metadata"][key] for key in ("name", "labels", "annotations")
                }
            made = Site(east, mark, agent, found)
            wait_until(lambda: answers(made, release), "the webhook answers")
            yield made
        finally:
            print(east.kubectl("get", "pods,events", "-n", release, check=False))
            log = ("logs", "-l", "app.kubernetes.io/component=admission", "-n", release)
            print(east.kubectl(*log, check=False)[-4000:])
            # Before the namespaces go: it would be asked about their TrainJobs.
            helm(
                *("uninstall", release, "--namespace", release, "--ignore-not-found"),
                kubeconfig=east.kubeconfig,
            )


def answers(site: Site, namespace: str) -> bool:
    """True where the API server has learned of the webhook, and reaches it."""
    job = train_job(namespace, "probe", site.runtimes["trl llama3.2-1b"], None)
    words = ("create", "--dry-run=server", "-o", "json", "-f-")
    said = site.cluster.kubectl(*words, input=json.dumps(job), check=False)
    return said.startswith("{") and json.loads(said)["spec"].get("trainer") == {}


def test_a_trainjob_of_another_framework_is_accepted_as_it_is(site: Site) -> None:
    namespace = site.namespace()
    reference = {"kind": "ClusterTrainingRuntime", "metadata": {"name": "torch-distributed"}}
    trainer = {"command": ["torchrun", "train.py"], "numNodes": 2}
    assert (
        site.made(train_job(namespace, "plain", reference, trainer))["spec"]["trainer"] == trainer
    )


@pytest.mark.long
def test_processes_without_a_launcher_find_each_other(site: Site, tmp_path: Path) -> None:
    """Two pods of a runtime of ours print what the real Trainer and the webhook gave them."""
    namespace = site.namespace()
    runtime = copy.deepcopy(site.runtimes["trl llama3.2-1b"])
    # Its own initializers have no image here.
    spec = runtime["spec"]["template"]["spec"]
    spec["replicatedJobs"] = [one for one in spec["replicatedJobs"] if one["name"] == "node"]
    del spec["replicatedJobs"][0]["dependsOn"]
    container(runtime)["resources"] = {"requests": {"cpu": "10m"}}
    site.put(runtime, "trl", "alone")
    trainer = {
        "image": site.cluster.image,
        "command": ["sh", "-c"],
        "args": ["env"],
        "numNodes": 2,
    }
    runtimes.workspace(site.cluster, namespace, "pair", tmp_path / "workspace")
    job = train_job(namespace, "pair", runtime, trainer)
    job["spec"]["suspend"] = True
    site.made(job)
    # As a queue does: what waited is let go.
    job_set(site.cluster, namespace, "pair")
    resume = ("patch", "trainjob", "pair", "-n", namespace, "--type=merge", "-p")
    site.cluster.kubectl(*resume, json.dumps({"spec": {"suspend": False}}))
    done = ("wait", "--for=condition=Complete", "trainjob/pair", "-n", namespace)
    site.cluster.kubectl(*done, "--timeout=120s")
    for rank in ("0", "1"):
        mine = f"batch.kubernetes.io/job-completion-index={rank}"
        said = site.cluster.kubectl("logs", "-n", namespace, "-l", mine, "-c", "node", "--tail=-1")
        env = dict(line.split("=", 1) for line in said.splitlines() if "=" in line)
        assert env["RANK"] == env["PET_NODE_RANK"] == rank
        assert env["WORLD_SIZE"] == env["PET_NNODES"] == "2"
        assert env["PET_NPROC_PER_NODE"] == "1"
        assert env["MASTER_ADDR"] == env["PET_MASTER_ADDR"] == "pair-node-0-0.pair"
        assert env["MASTER_PORT"] == env["PET_MASTER_PORT"] == "29500"
    # Trainer sets PET_* only where there is a trainer.
    bare = site.made(train_job(namespace, "bare", runtime, None))
    assert bare["spec"]["trainer"] == {}
    names = {one["name"] for one in container(job_set(site.cluster, namespace, "bare"))["env"]}
    assert {"PET_NNODES", "PET_NODE_RANK", "PET_MASTER_ADDR"} <= names


def test_the_keps_command_becomes_torchruns(site: Site) -> None:
    namespace = site.namespace()
    runtime = site.runtimes["trl llama3.2-1b"]
    trainer = {"command": ["python", "-m", "trl"], "args": ["dpo", "--max_steps", "5"]}
    job = train_job(namespace, "kep", runtime, trainer)
    kept = site.made(job)["spec"]["trainer"]
    assert kept["command"] == ["torchrun", "-m", "trl.scripts.dpo"]
    places = ["--model_name_or_path", "/workspace/model", "--dataset_name", "/workspace/dataset"]
    places += ["--output_dir", "/workspace/output"]
    assert kept["args"] == [*places, "--max_steps", "5"]
    node = container(job_set(site.cluster, namespace, "kep"))
    assert (node["command"], node["args"]) == (kept["command"], kept["args"])
    # Somebody applies his file again; a trainer that is made never changes.
    assert site.made(job)["spec"]["trainer"] == kept
    changed = copy.deepcopy(job)
    changed["spec"]["trainer"]["args"][0] = "sft"
    assert "immutable" in site.refused("apply", "--server-side", "-f-", given=changed)


def test_torchtunes_command_is_what_trainer_itself_would_make(site: Site) -> None:
    watched, alone = site.namespace(), site.namespace(watched=False)
    gpus = {"limits": {"nvidia.com/gpu": "2"}}
    cases: dict[str, Object] = {
        "full": {"command": ["tune", "run"]},
        "lora": {"command": ["tune", "run"], "args": [LORA, "epochs=1"]},
        "several": {"command": ["tune", "run"], "args": [LORA], "resourcesPerNode": gpus},
    }
    for model in ("llama3.2-1b", "qwen2.5-1.5b"):
        runtime = site.runtimes[f"torchtune {model}"]
        for case, trainer in cases.items():
            name = f"{case}-{model[:5]}"
            for namespace in (watched, alone):
                site.cluster.apply(train_job(namespace, name, runtime, trainer))
            ours, theirs = (
                container(job_set(site.cluster, namespace, name)) for namespace in (watched, alone)
            )
            assert ours.get("args") == theirs.get("args") == trainer.get("args")
            first = f"--rdzv_endpoint={name}-node-0-0.{name}:29500"
            kubernetes = "--rdzv_endpoint=$(PET_MASTER_ADDR):$(PET_MASTER_PORT)"
            assert [first if word == kubernetes else word for word in ours["command"]] == theirs[
                "command"
            ]
            env = {one["name"]: one.get("value") for one in ours["env"]}
            assert env["PET_MASTER_ADDR"] == f"{name}-node-0-0.{name}"


def test_a_runtime_need_not_be_named_as_trainer_wants_it(site: Site) -> None:
    runtime = site.runtime("torchtune", "our-own-small-model", "torchtune qwen2.5-1.5b")
    trainer = {"command": ["tune", "run"], "args": [LORA]}
    unwatched = train_job(site.namespace(watched=False), "job", runtime, trainer)
    assert "supported pretrained model" in site.denied(unwatched)
    namespace = site.namespace()
    site.cluster.apply(train_job(namespace, "job", runtime, trainer))
    command = container(job_set(site.cluster, namespace, "job"))["command"]
    config = "qwen2_5/1.5B_lora_single_device"
    assert command[:5] == ["tune", "run", "lora_finetune_single_device", "--config", config]
    assert "tokenizer.merges_file=/workspace/model/merges.txt" in command


@pytest.mark.parametrize(
    ("runtime", "trainer", "said"),
    [
        ("trl llama3.2-1b", {"command": ["trl", "ppo"]}, "spec.trainer.command: TRL has no PPO"),
        (
            "trl llama3.2-1b",
            {"args": ["--max_seq_length", "512"]},
            "spec.trainer.args[0]: TRL has no --max_seq_length: use --max_length",
        ),
        (
            "torchtune llama3.2-1b",
            # With the command, Trainer would refuse it too, and either answers first.
            {"args": ["output_dir=/elsewhere"]},
            "spec.trainer.args[0]: 'output_dir' is managed by the runtime",
        ),
        (
            "torchtune qwen2.5-1.5b",
            {"args": [LORA, "model.quantize_base=True"]},
            "spec.runtimeRef.name: QLoRA is not supported for qwen2_5/1.5B",
        ),
    ],
)
def test_what_cannot_run_is_refused_when_it_is_made(
    site: Site, runtime: str, trainer: Object, said: str
) -> None:
    namespace = site.namespace()
    answered = site.denied(train_job(namespace, "bad", site.runtimes[runtime], trainer))
    assert "validate.trainjobs.windlass.dev" in answered
    assert said in answered
    assert site.cluster.get("trainjobs", "-n", namespace)["items"] == []


def test_what_no_initializer_fetches_is_refused(site: Site) -> None:
    job = train_job(site.namespace(), "bad", site.runtimes["trl llama3.2-1b"], {})
    job["spec"]["initializer"] = {"model": {"storageUri": "gs://bucket/model"}}
    said = "spec.initializer.model.storageUri: 'gs://bucket/model' does not begin with hf://"
    assert said in site.denied(job)


def test_what_the_schema_refuses_it_says_itself(site: Site) -> None:
    job = train_job(site.namespace(), "bad", site.runtimes["trl llama3.2-1b"], {"args": "text"})
    said = site.refused("create", "--validate=false", "-f-", given=job)
    assert "spec.trainer.args" in said
    assert "failed calling webhook" not in said


def test_an_update_is_checked_against_what_the_runtime_is_by_then(site: Site) -> None:
    namespace = site.namespace()
    runtime = site.runtime("torch", "changing", "trl llama3.2-1b")
    job = train_job(namespace, "waits", runtime, {"command": ["trl", "ppo"]})
    job["spec"]["suspend"] = True
    site.cluster.apply(job)
    runtime["metadata"]["labels"] = {FRAMEWORK: "trl"}
    site.cluster.apply(runtime)
    resume = ("patch", "trainjob", "waits", "-n", namespace, "--type=merge", "-p")
    said = site.refused(*resume, json.dumps({"spec": {"suspend": False}}))
    assert "spec.trainer.command: TRL has no PPO" in said
    # Whatever does not run it goes on: labels, and its end.
    site.cluster.kubectl("label", "trainjob", "waits", "seen=yes", "-n", namespace)
    runtime["metadata"]["labels"] = {FRAMEWORK: "torch"}
    site.cluster.apply(runtime)
    site.cluster.kubectl(*resume, json.dumps({"spec": {"suspend": False}}))
    site.cluster.kubectl("delete", "trainjob", "waits", "-n", namespace, "--timeout=60s")


def test_what_windlass_launches_does_not_wait_for_it(site: Site) -> None:
    namespace = site.namespace()
    job = train_job(
        namespace, "ours", site.runtimes["trl llama3.2-1b"], {"command": ["trl", "ppo"]}
    )
    job["metadata"]["labels"] = {"windlass.dev/kind": "job"}
    job["spec"]["suspend"] = True
    said = site.refused("create", "-f-", given=job)
    assert "metadata.labels[windlass.dev/kind]: may be set only by Windlass's agents" in said
    # An administrator by another name: what counts is who says so.
    agent = ("--as", site.agent, "--as-group", "system:masters")
    site.cluster.kubectl("create", "-f-", *agent, input=json.dumps(job))
    assert site.read(job)["spec"]["trainer"] == {"command": ["trl", "ppo"]}
    # As Kueue does when its turn has come.
    resume = ("patch", "trainjob", "ours", "-n", namespace, "--type=merge", "-p")
    site.cluster.kubectl(*resume, json.dumps({"spec": {"suspend": False}}))
    other = train_job(namespace, "others", site.runtimes["trl llama3.2-1b"], None)
    site.made(other)
    label = ("label", "trainjob", "others", "windlass.dev/kind=job", "-n", namespace)
    assert "may be set only by Windlass's agents" in site.refused(*label)


@pytest.mark.parametrize("config", [TRLConfig(), TorchTuneConfig(epochs=1)])
def test_windlass_own_builtin_trainer_is_understood(site: Site, config: LLMBackend) -> None:
    namespace = site.namespace()
    runtime = site.runtimes[f"{config.framework} qwen2.5-1.5b"]["metadata"]["name"]
    job = BuiltinTrainer(config).to_train_job("built-in", runtime=runtime, namespace=namespace)
    kept = site.made(job)["spec"]["trainer"]
    sent = job["spec"]["trainer"]
    assert kept["args"] == sent["args"]
    assert kept["command"][: len(sent["command"])] == sent["command"]
    assert container(job_set(site.cluster, namespace, "built-in"))["args"] == sent["args"]
