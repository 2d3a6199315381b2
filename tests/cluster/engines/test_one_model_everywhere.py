"""One model on a machine and in two clusters: load, quota, a job's adapter, a cluster that is lost.

Through unmodified openai-python. The machine is the server's own; it and the clusters' pods have
the built-in engine, and then vLLM's build for CPUs.
"""

import contextlib
import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

import httpx
import openai
import pytest
import yaml
from tests.cluster.fixtures import Clusters
from tests.cluster.stages.driven import MIB
from tests.cluster.stages.engines import from_outside
from tests.cluster.stages.journey import QUOTA_BYTES, Journey, platform
from tests.support.clients.jobs import ended
from tests.support.environments import made_once
from tests.support.environments.postgres import reachable_folder, remove_database
from tests.support.environments.vllm_env import turn, vllm_python
from tests.support.processes.cut_line import CutLine, cut_line
from tests.support.processes.windlass import running
from tests.support.waiting import wait_until

from windlass.client import Windlass as Client
from windlass.demo.questions import split

pytestmark = [pytest.mark.torch, pytest.mark.long, pytest.mark.timeout(2400)]
BASE, TEAM = "our-base", "makers"
SECONDS = 420
TOO_LITTLE = 1024 * MIB
# A ping each 25 s that is answered in 10, and what a busy machine adds.
SILENT_SECONDS = 90
SHORTER = 320
CLIENTS, TOKENS = 9, 200
COUNTED = re.compile(
    r'windlass_engine_tokens_total\{engine="([^"]+)",[^\n]*what="generated"\} (\S+)'
)


@dataclass(frozen=True)
class Kind:
    """A kind of engine, and what it needs."""

    name: str
    # Of a cluster, in bytes: one engine or one job.
    quota: int
    arguments: dict[str, Any]


SMALL = {"context_length": 384, "dtype": "float32", "eager": True, "kv_cache_bytes": 2**28}
KINDS = [
    Kind("builtin", QUOTA_BYTES, {}),
    Kind("vllm", 5 * 1024 * MIB, SMALL),
]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Iterator[Kind]:
    found: Kind = request.param
    with turn() if found.name == "vllm" else contextlib.nullcontext():
        yield found


class Stage(NamedTuple):
    """The platform with its clusters, and the line by which the agent of `east` calls."""

    journey: Journey
    line: CutLine


@pytest.fixture
def stage(clusters: Clusters, kind: Kind) -> Iterator[Stage]:
    python = vllm_python() if kind.name == "vllm" else None
    with contextlib.ExitStack() as stack:
        found = {name: stack.enter_context(clusters.open(name)) for name in ("east", "west")}
        folder = stack.enter_context(reachable_folder())
        windlass, address = stack.enter_context(platform(folder, found))
        config = windlass.configs["all"]
        document = yaml.safe_load(config.read_text())
        document["inference"] = {"idle_seconds": 20, "scale_down_seconds": 15}
        # One engine here, so that the others have to be in the clusters.
        document["agent"] = {"engine_slots": 1, "spare_trainers": 0}
        if python:
            document["agent"] |= {"vllm_python": str(python), "engine_cpus": 1}
        config.write_text(yaml.safe_dump(document))
        stack.callback(remove_database, windlass.data)
        stack.enter_context(running(windlass))
        made = Journey(windlass, stack.enter_context(windlass.http()), found, address)
        line = stack.enter_context(cut_line(address.removeprefix("grpcs://")))
        ways = {"east": f"grpcs://127.0.0.1:{line.port}"}
        for name in found:
            way = ways.get(name, "")
            made.join(name, folder / name, stack, serves=True, vllm=python, address=way)
            made.share_out(name, memory=kind.quota)
        team = made.team(TEAM, "east", "west")
        for cluster in found.values():
            cluster.apply(from_outside(team.namespace, cluster.host))
        with Client(windlass.url, team.key) as client:
            client.models.import_folder(BASE, made_once.tiny_model())
        yield Stage(made, line)


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


class Failure(NamedTuple):
    """A stream that broke off: when it was asked for, the tokens that came of it, and its end."""

    began: float
    tokens: int
    error: openai.APIError


class Load:
    """Clients that ask for streams until they are told that it was enough."""

    def __init__(self, client: Any, model: str):
        self.enough = Event()
        # Tokens of each that came whole.
        self.answers: list[int] = []
        self.failures: list[Failure] = []
        self._client = client
        self._model = model

    def ask(self, _: int) -> None:
        while not self.enough.is_set():
            self.ask_once()

    def ask_once(self) -> None:
        counted, began = 0, time.monotonic()
        try:
            for chunk in self._stream():
                counted = chunk.usage.completion_tokens if chunk.usage else counted
            self.answers.append(counted)
        except openai.APIError as error:
            self.failures.append(Failure(began, counted, error))

    @property
    def tokens(self) -> int:
        return sum(self.answers) + sum(one.tokens for one in self.failures)

    @contextlib.contextmanager
    def asking(self, clients: int = CLIENTS) -> Iterator[None]:
        """Has clients ask for the length of the block; what they asked for has ended then."""
        self.enough.clear()
        with ThreadPoolExecutor(clients) as pool:
            asking = [pool.submit(self.ask, number) for number in range(clients)]
            try:
                yield
            finally:
                self.enough.set()
            for one in asking:
                one.result()

    def _stream(self) -> Any:
        options = {"include_usage": True, "continuous_usage_stats": True}
        return self._client.completions.create(
            model=self._model, prompt="The harbour", max_tokens=TOKENS, stream=True,
            extra_body={"ignore_eos": True, "stream_options": options},
        )  # fmt: skip


def test_a_model_is_served_by_as_many_as_it_needs_wherever_they_are(
    stage: Stage, kind: Kind, tmp_path: Path
) -> None:
    journey, line = stage
    client = journey.windlass.openai(journey.projects[TEAM].key, max_retries=0)
    model = trained(journey, client, tmp_path)
    # Not before: a job could be placed there, and would wait.
    journey.share_out("west", memory=TOO_LITTLE)
    served = {"engine": kind.name, "arguments": kind.arguments}
    scaled = served | {"max_replicas": 3, "target_requests": 3}
    serve(journey, min_replicas=0, **scaled)
    before = used(journey)
    load = Load(client, model)
    with load.asking():
        wait_until(lambda: serving(journey)["ready_replicas"] == 2, "two answer", SECONDS)
        waits = "waiting for quota in the engine's cluster"
        wait_until(lambda: waits in serving(journey)["message"], "the third says why", 60)
        journey.share_out("west", memory=kind.quota)
        wait_until(lambda: serving(journey)["ready_replicas"] == 3, "all three", SECONDS)
        wait_until(lambda: all(model in one["adapters"] for one in engines(journey)), "loaded")
        assert len({one["cluster_id"] for one in engines(journey)}) == 3
        # All stay while nothing is asked.
        serve(journey, min_replicas=3, **scaled)
    assert not load.failures, ("to scale cuts no stream", load.failures[:3])
    assert_counted_where_it_answers(journey, load, before)
    # Room for one that takes the place of another, where the line is cut: wherever the three are
    # then, one is there.
    journey.share_out("east", memory=2 * kind.quota)
    former = {one["id"] for one in engines(journey)}
    # Few, so that two cores start three engines beside those that answer.
    with load.asking(clients=3):
        scaled["arguments"] = kind.arguments | {"context_length": SHORTER}
        serve(journey, min_replicas=3, **scaled)
        wait_until(lambda: renewed(journey, former), "three with the new argument", 3 * SECONDS)
    assert not load.failures, ("to change an argument cuts no stream", load.failures[:3])
    with load.asking():
        whole = len(load.answers)
        wait_until(lambda: len(load.answers) > whole + CLIENTS, "streams at all of them", SECONDS)
        line.cut()
        cut_at, whole = time.monotonic(), len(load.answers)
        wait_until(lambda: load.failures, "streams through it break off", SILENT_SECONDS)
        wait_until(
            lambda: len(load.answers) > whole + 20, "new ones are answered elsewhere", SECONDS
        )
        # The one that was lost is missing no more, once there is room where it waits now.
        journey.share_out("west", memory=3 * kind.quota)
        wait_until(lambda: serving(journey)["ready_replicas"] == 3, "made up for", SECONDS)
        line.mend()
        serve(journey, min_replicas=0, **scaled)
    for one in load.failures:
        assert one.began < cut_at, "what began after the cut succeeds"
        assert one.tokens, "what had not begun to come is sent elsewhere"
        assert type(one.error) is openai.APIError, "its last chunk says what happened"
    wait_until(lambda: not engines(journey), "none is left without load", SECONDS)
    wait_until(lambda: used(journey) - before >= load.tokens, "usage is counted", 60)
    # Of streams that were cut, a chunk may have been on its way.
    assert used(journey) - before <= load.tokens + 16 * len(load.failures)


def renewed(journey: Journey, former: set[str]) -> bool:
    """True once three others answer."""
    now = {one["id"] for one in engines(journey)}
    return len(now) == 3 and not now & former and serving(journey)["ready_replicas"] == 3


def serve(journey: Journey, **settings: Any) -> None:
    journey.json("PUT", f"/servings/{BASE}", key=journey.projects[TEAM].key, **settings)


def assert_counted_where_it_answers(journey: Journey, load: Load, before: int) -> None:
    """The adapter answers on each of the three, and usage is the sum of what they count."""
    at = agreed(journey, load, before)
    with ThreadPoolExecutor(CLIENTS) as pool:
        for one in [pool.submit(load.ask_once) for _ in range(2 * CLIENTS)]:
            one.result()
    now = agreed(journey, load, before)
    assert len(now) == 3
    assert all(now[engine] > at[engine] for engine in now), (at, now)


def agreed(journey: Journey, load: Load, before: int) -> dict[str, int]:
    """What each engine has written, once all have written what clients were told, and billed."""
    wait_until(lambda: used(journey) - before >= load.tokens, "usage is counted", 60)
    assert used(journey) - before == load.tokens
    # One more for the keeper of each, before anybody else. Agents ask for the numbers now and then.
    expected = load.tokens + 3
    wait_until(lambda: sum(counted(journey).values()) == expected, f"{expected} counted", 120)
    return counted(journey)


def counted(journey: Journey) -> dict[str, int]:
    """Tokens that each engine has written, as its agent tells operators."""
    agents = [agent.log.parent / "data" / "operations" for agent in journey.agents.values()]
    addresses = [journey.windlass.operations(), *(path.read_text().strip() for path in agents)]
    pages = [httpx.get(f"{address}/metrics").raise_for_status().text for address in addresses]
    return {found[1]: int(float(found[2])) for page in pages for found in COUNTED.finditer(page)}


def used(journey: Journey) -> int:
    """Tokens that the project has had written for it."""
    query = f"/usage?start_time={int(time.time()) - 86400}&limit=31"
    buckets = journey.json("GET", query, key=journey.projects[TEAM].key)["data"]
    return sum(row["output_tokens"] for bucket in buckets for row in bucket["results"])
