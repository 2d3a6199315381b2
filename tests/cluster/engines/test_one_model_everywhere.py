"""One model on a machine and in two clusters: load, quota, a job's adapter, a cluster that is lost.

Through unmodified openai-python. The machine is the server's own, with the built-in engine, as
the clusters' pods have it.
"""

import contextlib
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import openai
import pytest
import yaml
from tests.cluster.engines.test_serve_on_kubernetes import from_outside
from tests.cluster.fixtures import Clusters
from tests.cluster.stages.driven import MIB
from tests.cluster.stages.journey import QUOTA_BYTES, Journey, platform
from tests.support.clients.jobs import ended
from tests.support.environments import made_once
from tests.support.environments.postgres import reachable_folder, remove_database
from tests.support.processes.windlass import running
from tests.support.waiting import wait_until

from windlass.client import Windlass as Client
from windlass.demo.questions import split

pytestmark = [pytest.mark.torch, pytest.mark.long, pytest.mark.timeout(2400)]
BASE, TEAM = "our-base", "makers"
SECONDS = 420
TOO_LITTLE = 1024 * MIB


@pytest.fixture
def journey(clusters: Clusters) -> Iterator[Journey]:
    with contextlib.ExitStack() as stack:
        found = {name: stack.enter_context(clusters.open(name)) for name in ("east", "west")}
        folder = stack.enter_context(reachable_folder())
        windlass, address = stack.enter_context(platform(folder, found))
        config = windlass.configs["all"]
        document = yaml.safe_load(config.read_text())
        document["inference"] = {"idle_seconds": 20, "scale_down_seconds": 15}
        # One engine here, so that the others have to be in the clusters.
        document["agent"] = {"engine_slots": 1, "spare_trainers": 0}
        config.write_text(yaml.safe_dump(document))
        stack.callback(remove_database, windlass.data)
        stack.enter_context(running(windlass))
        made = Journey(windlass, stack.enter_context(windlass.http()), found, address)
        for name in found:
            made.join(name, folder / name, stack, serves=True)
            made.share_out(name, memory=QUOTA_BYTES)
        team = made.team(TEAM, "east", "west")
        for cluster in found.values():
            cluster.apply(from_outside(team.namespace, cluster.host))
        with Client(windlass.url, team.key) as client:
            client.models.import_folder(BASE, made_once.tiny_model())
        yield made


def serving(journey: Journey) -> dict[str, Any]:
    found: dict[str, Any]
    found = journey.json("GET", f"/servings/{BASE}", key=journey.projects[TEAM].key)
    return found


def engines(journey: Journey) -> list[dict[str, Any]]:
    found: list[dict[str, Any]]
    found = journey.json("GET", "/engines", key=journey.projects[TEAM].key)["data"]
    return found


def trained(journey: Journey, client: Any, folder: Path) -> str:
    """The name of an adapter that a short job has made, wherever it ran."""
    path = folder / "train.jsonl"
    path.write_text("".join(json.dumps(one.to_row()) + "\n" for one in split()[0][:32]))
    file = client.files.create(file=path, purpose="fine-tune")
    job = client.fine_tuning.jobs.create(
        model=BASE, training_file=file.id, hyperparameters={"n_epochs": 1}
    )
    job = ended(client, job, SECONDS)
    assert job.status == "succeeded", job.error
    return str(job.fine_tuned_model)


class Load:
    """Clients that ask for streams until they are told that it was enough."""

    def __init__(self, client: Any, model: str):
        self.enough = Event()
        self.tokens = self.cut = self.whole = 0
        self._client = client
        self._model = model

    def ask(self, _: int) -> None:
        while not self.enough.is_set():
            counted = 0
            try:
                for chunk in self._stream():
                    counted = chunk.usage.completion_tokens if chunk.usage else counted
                self.whole += 1
            except openai.APIError:
                self.cut += 1
            self.tokens += counted

    def _stream(self) -> Any:
        options = {"include_usage": True, "continuous_usage_stats": True}
        return self._client.completions.create(
            model=self._model, prompt="The harbour", max_tokens=200, stream=True,
            extra_body={"ignore_eos": True, "stream_options": options},
        )  # fmt: skip


def test_a_model_is_served_by_as_many_as_it_needs_wherever_they_are(
    journey: Journey, tmp_path: Path
) -> None:
    client = journey.windlass.openai(journey.projects[TEAM].key, max_retries=0)
    model = trained(journey, client, tmp_path)
    # Not before: a job could be placed there, and would wait.
    journey.share_out("west", memory=TOO_LITTLE)
    body = {"min_replicas": 0, "max_replicas": 3, "target_requests": 3}
    journey.json("PUT", f"/servings/{BASE}", key=journey.projects[TEAM].key, **body)
    before = used(journey)
    load = Load(client, model)
    with ThreadPoolExecutor(9) as pool:
        asking = [pool.submit(load.ask, number) for number in range(9)]
        try:
            wait_until(lambda: serving(journey)["ready_replicas"] == 2, "two answer", SECONDS)
            waits = "waiting for quota in the engine's cluster"
            wait_until(lambda: waits in serving(journey)["message"], "the third says why", 60)
            journey.share_out("west", memory=QUOTA_BYTES)
            wait_until(lambda: serving(journey)["ready_replicas"] == 3, "all three", SECONDS)
            wait_until(lambda: all(model in one["adapters"] for one in engines(journey)), "loaded")
            assert len({one["cluster_id"] for one in engines(journey)}) == 3
            assert load.cut == 0, "to scale cuts no stream"
            journey.agents["east"].kill()
            wait_until(lambda: load.cut, "streams through it break off", 60)
            whole = load.whole
            wait_until(lambda: load.whole > whole + 20, "new ones are answered elsewhere", SECONDS)
            # The one that was lost is missing no more, once there is room where it waits now.
            journey.share_out("west", memory=2 * QUOTA_BYTES)
            wait_until(lambda: serving(journey)["ready_replicas"] == 3, "made up for", SECONDS)
            journey.agents["east"].start()
        finally:
            load.enough.set()
        for one in asking:
            one.result()
    wait_until(lambda: not engines(journey), "none is left without load", SECONDS)
    wait_until(lambda: used(journey) - before >= load.tokens, "usage is counted", 60)
    # Of streams that were cut, a chunk may have been on its way.
    assert used(journey) - before <= load.tokens + 16 * load.cut


def used(journey: Journey) -> int:
    """Tokens that the project has had written for it."""
    query = f"/usage?start_time={int(time.time()) - 86400}&limit=31"
    buckets = journey.json("GET", query, key=journey.projects[TEAM].key)["data"]
    return sum(row["output_tokens"] for bucket in buckets for row in bucket["results"])
