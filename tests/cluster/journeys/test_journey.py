"""The whole journey over two real clusters: quota, queue, training, preemption, resume, answers."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cluster.fixtures import Clusters
from tests.cluster.kubectl import Kubectl
from tests.cluster.stages.journey import BASE, QUOTA_BYTES, Journey, platform
from tests.support.environments import made_once
from tests.support.environments.postgres import reachable_folder, remove_database
from tests.support.processes.shell import Shell
from tests.support.processes.windlass import running
from tests.support.waiting import wait_until

from windlass.client import Windlass as Client
from windlass.demo.questions import Question, split

pytestmark = [pytest.mark.torch, pytest.mark.timeout(2400)]


@pytest.fixture(scope="module")
def journey(clusters: Clusters) -> Iterator[Journey]:
    with contextlib.ExitStack() as stack:
        found = {name: stack.enter_context(clusters.open(name)) for name in ("east", "west")}
        folder = stack.enter_context(reachable_folder())
        windlass, address = stack.enter_context(platform(folder, found))
        stack.callback(remove_database, windlass.data)
        stack.enter_context(running(windlass))
        made = Journey(windlass, stack.enter_context(windlass.http()), found, address)
        for name in found:
            made.join(name, folder / name, stack)
            made.share_out(name, memory=QUOTA_BYTES)
        with Client(windlass.url, windlass.owner_key) as client:
            client.models.import_folder(BASE, made_once.tiny_model(), for_everyone=True)
        made.team("east-team", "east")
        made.team("west-team", "west")
        made.team("both-team", "east", "west")
        made.team("urgent-team", "east", urgent=True)
        yield made


def train(journey: Journey, team: str, folder: Path, *, epochs: int) -> str:
    """A job of a team, through openai-python."""
    client = journey.windlass.openai(journey.projects[team].key)
    path = folder / "train.jsonl"
    path.write_text("".join(json.dumps(one.to_row()) + "\n" for one in split()[0]))
    file = client.files.create(file=path, purpose="fine-tune")
    job = client.fine_tuning.jobs.create(
        model=BASE,
        training_file=file.id,
        seed=5,
        method={"type": "supervised", "supervised": {"hyperparameters": {"n_epochs": epochs}}},
    )
    return str(job.id)


def ask(client: Any, model: str, question: Question) -> str:
    answer = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": question.text}],
        temperature=0,
        max_completion_tokens=32,
    )
    return str(answer.choices[0].message.content)


def test_a_job_waits_for_quota_trains_is_preempted_goes_on_and_answers(
    journey: Journey, tmp_path: Path
) -> None:
    first = train(journey, "east-team", tmp_path, epochs=2)
    journey.reach(first, "east-team", "running", "finalizing", "succeeded")
    second = train(journey, "east-team", tmp_path, epochs=12)
    waits(journey, second)
    journey.reach(first, "east-team", "succeeded")
    # Admitted because the other ended.
    journey.reach(second, "east-team", "running")
    wait_until(lambda: checkpoints(journey, second), "a checkpoint to resume from", 480)
    urgent = train(journey, "urgent-team", tmp_path, epochs=1)
    journey.reach(urgent, "urgent-team", "succeeded")
    job = journey.reach(second, "east-team", "succeeded")
    told = " | ".join(journey.events(second, "east-team"))
    assert "reempt" in told, told
    assert "Training continues after step" in told, told
    client = journey.windlass.openai(journey.projects["east-team"].key)
    held_out = split()[1]
    model = job["fine_tuned_model"]
    right = sum(ask(client, model, one).strip() == one.answer for one in held_out)
    assert right >= 18, [ask(client, model, one) for one in held_out[:3]]


def waits(journey: Journey, job_id: str) -> None:
    """The same wait through OpenAI's API, the command, and kubectl through the tunnel."""
    team = journey.projects["east-team"]

    def queued() -> bool:
        queue = journey.job(job_id, "east-team")["windlass"]["queue"]
        return queue["position"] == 1 and "insufficient unused quota" in queue["reason"]

    wait_until(queued, "the job says why it waits")
    home = journey.windlass.data.parent / "home"
    shell = Shell(journey.windlass, home)
    home.mkdir(exist_ok=True)
    key = {"WINDLASS_API_KEY": team.key}
    listed = shell.run("jobs", "explain", job_id, environment=key)
    assert "insufficient unused quota" in listed.stdout, listed.stderr
    config = home / "kubeconfig.yaml"
    made = shell.run("clusters", "kubeconfig", "east", environment=key)
    assert made.returncode == 0, made.stderr
    config.write_text(made.stdout)
    kubectl = Kubectl(
        journey.clusters["east"].kubectl.program, with_key(config, key), home / "cache"
    )
    workloads = json.loads(kubectl("get", "workloads.kueue.x-k8s.io", "-o", "json"))["items"]
    reasons = [c["reason"] for one in workloads for c in one["status"].get("conditions", [])]
    assert "Pending" in reasons


def with_key(config: Path, environment: dict[str, str]) -> Path:
    """The kubeconfig with the key that its plugin would find in a person's context."""
    document = yaml.safe_load(config.read_text())
    for user in document["users"]:
        plugin = user["user"]["exec"]
        pairs = [{"name": name, "value": value} for name, value in environment.items()]
        plugin["env"] = (plugin.get("env") or []) + pairs
    config.write_text(yaml.safe_dump(document))
    return config


def checkpoints(journey: Journey, job_id: str) -> list[Any]:
    path = f"/fine_tuning/jobs/{job_id}/checkpoints"
    found: list[Any] = journey.json("GET", path, key=journey.projects["east-team"].key)["data"]
    return found


def test_each_team_trains_where_it_may(journey: Journey, tmp_path: Path) -> None:
    west = train(journey, "west-team", tmp_path, epochs=1)
    both = train(journey, "both-team", tmp_path, epochs=1)
    journey.reach(west, "west-team", "succeeded")
    journey.reach(both, "both-team", "succeeded")
    path = f"/fine_tuning/jobs/{west}/explain"
    explained = journey.json("GET", path, key=journey.projects["west-team"].key)
    chosen = [one["name"] for one in explained["verdicts"] if one["chosen"]]
    assert chosen == ["west"]
