"""Runs of all parameters in pods of a real cluster, by loops of the tinker SDK."""

import contextlib
import io
import tarfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from tests.cluster.fixtures import Clusters
from tests.cluster.stages.agents import joined
from tests.cluster.stages.engines import ENGINE_BYTES, engine_section, from_outside
from tests.cluster.stages.journey import QUOTA_BYTES, Journey, platform, settings
from tests.support.environments.postgres import reachable_folder
from tests.support.factories.toy_model import make_model
from tests.support.processes.windlass import running
from tests.support.waiting import wait_until

from windlass.client import Windlass as Client
from windlass.core.app import runtime_dir

# Loops are as loose about types as its users are.
tinker: Any = import_module("tinker")
types: Any = tinker.types
BASE, CLUSTER = "toy", "east"
SECONDS = 400.0
# Less than a client waits for one answer.
_ASKED_SECONDS = 3.0
_LEFT = (
    "deployments,replicasets,pods,workloads,resourceclaims,resourceclaimtemplates,"
    "persistentvolumeclaims"
)


@dataclass
class Loop:
    """A loop that trains every parameter on the same tokens again and again."""

    service: Any
    team: str
    tokens: Sequence[int]
    losses: list[float] = field(default_factory=list)

    @cached_property
    def training(self) -> Any:
        """The client of the run, which begins."""
        future = self.service.create_lora_training_client(base_model=BASE, seed=1)
        return future.result(SECONDS)

    @property
    def run_id(self) -> str:
        return str(self.training.model_id)

    def ask(self) -> tuple[Any, Any]:
        """Asks for a step."""
        computed = self.training.forward_backward(self._data(), "cross_entropy")
        return computed, self.training.optim_step(types.AdamParams(learning_rate=1e-2))

    def keep(self, asked: tuple[Any, Any]) -> None:
        """Waits for a step, and keeps its loss."""
        computed, stepped = (one.result(SECONDS) for one in asked)
        self.losses.append(computed.metrics["loss:sum"])
        assert stepped.metrics["step:max"] == len(self.losses)

    def step(self) -> None:
        self.keep(self.ask())

    def look(self) -> None:
        """Asks for a loss, which changes nothing."""
        self.training.forward(self._data(), "cross_entropy").result(SECONDS)

    def sampled(self) -> list[tuple[int, float]]:
        """Tokens that the run's weights continue a prompt with, and their logarithms."""
        sampler = self.training.save_weights_and_get_sampling_client()
        sampler = sampler.result() if hasattr(sampler, "result") else sampler
        params = types.SamplingParams(max_tokens=3, temperature=0.0)
        prompt = types.ModelInput.from_ints([1, 2])
        [said] = sampler.sample(prompt, 1, params).result(SECONDS).sequences
        return list(zip(said.tokens, said.logprobs, strict=True))

    def close(self) -> None:
        self.service.close("success").result(SECONDS)

    def _data(self) -> list[Any]:
        targets = {
            "target_tokens": list(self.tokens[1:]),
            "weights": [1.0] * (len(self.tokens) - 1),
        }
        model_input = types.ModelInput.from_ints(list(self.tokens[:-1]))
        return [types.Datum(model_input=model_input, loss_fn_inputs=targets)] * 2


@dataclass
class TrainingStage:
    """A platform with one cluster whose quota holds one pod, and two teams, one of them urgent."""

    journey: Journey
    database: str

    def loop(self, team: str, tokens: Sequence[int], **options: str) -> Loop:
        """A loop of a team; `cluster` and `resources` are options of its session."""
        return self._loop(team, tokens, full_parameters="true", **options)

    def adapter_loop(self, team: str, tokens: Sequence[int]) -> Loop:
        """A loop of a team that trains an adapter, alone in each pass."""
        return self._loop(team, tokens, exclusive="true")

    def host_adapters(self, name: str) -> None:
        """Has the server train adapters in the cluster from now on, in the place of a new team."""
        windlass = self.journey.windlass
        team = self.journey.team(name, CLUSTER)
        self.journey.clusters[CLUSTER].apply(
            from_outside(team.namespace, self.journey.clusters[CLUSTER].host)
        )
        config = windlass.configs["all"]
        document = yaml.safe_load(config.read_text())
        document["tuning"] |= {
            "adapter_cluster": CLUSTER,
            "adapter_project": team.id,
            "trainer_idle_seconds": 3,
        }
        config.write_text(yaml.safe_dump(document))
        windlass.terminate("all")
        windlass.start("all")
        windlass.wait_ready()

    def _loop(self, team: str, tokens: Sequence[int], **options: str) -> Loop:
        service = tinker.ServiceClient(
            base_url=self.journey.windlass.url,
            api_key="tml-" + self.journey.projects[team].key,
            user_metadata={f"windlass.{name}": value for name, value in options.items()},
        )
        return Loop(service, team, tokens)

    def weights(self, loop: Loop) -> bytes:
        """The weights that a run has, by the archive of a checkpoint for samplers."""
        loop.training.save_weights_for_sampler("end").result(SECONDS)
        at = f"/api/v1/training_runs/{loop.run_id}/checkpoints/sampler_weights/end/archive"
        with self.journey.windlass.http(self.journey.projects[loop.team].key) as http:
            answer = http.get(at, follow_redirects=True).raise_for_status()
        with tarfile.open(fileobj=io.BytesIO(answer.content)) as archive:
            [name] = [one for one in archive.getnames() if one.endswith(".safetensors")]
            file = archive.extractfile(name)
            assert file is not None
            return file.read()

    def found(self, kind: str, team: str) -> list[dict[str, Any]]:
        """Objects of a kind in the namespace of a team."""
        space = self.journey.projects[team].namespace
        items: list[dict[str, Any]] = self.journey.clusters[CLUSTER].get(kind, "-n", space)["items"]
        return items

    def reason(self, loop: Loop, meanwhile: Callable[[], None]) -> str:
        """What the client of a loop that waits hears.

        An answer takes as long as a client waits for one; others go on `meanwhile`.
        """
        with ThreadPoolExecutor(1) as pool:
            said = pool.submit(self._reason, loop)
            while not said.done():
                meanwhile()
                wait([said], _ASKED_SECONDS)
        return said.result()

    def _reason(self, loop: Loop) -> str:
        query = (
            f"SELECT id FROM tuning_operations WHERE run_id = '{loop.run_id}' AND state = 'queued'"
        )
        [operation_id, *_] = wait_until(lambda: self.ids(query), "something is asked")
        with self.journey.windlass.http(self.journey.projects[loop.team].key) as http:
            body = {"request_id": operation_id}
            answer = http.post("/api/v1/retrieve_future", json=body).raise_for_status().json()
        assert answer["queue_state"] == "paused_capacity", answer
        return str(answer["queue_state_reason"])

    def has_state(self, loop: Loop) -> bool:
        """True where a run was saved, so that it goes on from there."""
        query = f"SELECT state_checkpoint_id FROM tuning_runs WHERE id = '{loop.run_id}'"
        [state] = self.ids(query)
        return bool(state)

    def ids(self, query: str) -> list[str]:
        """A column of the platform's database."""
        with psycopg.connect(self.database, autocommit=True) as connection:
            return [str(one) for (one,) in connection.execute(query).fetchall()]

    def numbers(self, query: str) -> list[int]:
        """The same of whole numbers."""
        return [int(one) for one in self.ids(query)]

    def left(self) -> dict[str, list[str]]:
        """Everything that runs may leave, by where it lies."""
        data, cluster = self.journey.windlass.data, self.journey.clusters[CLUSTER]
        found = {
            "pods": self.ids("SELECT id FROM tuning_pods"),
            "devices": self.ids("SELECT id FROM tuning_leases WHERE device <> 'cpu'"),
            "seats": self.ids("SELECT id FROM tuning_seats"),
            # A row stays for a while once its cluster has nothing of it.
            "workloads": self.ids(
                "SELECT id FROM clusters_workloads WHERE owner = 'tuning' AND collected_at IS NULL"
            ),
            "sockets": [one.name for one in runtime_dir(data).glob("t-*")],
            "folders": [one.name for one in (data / "tuning").glob("*")],
        }
        for team in self.journey.projects.values():
            words = ("get", _LEFT, "-n", team.namespace, "-o", "name")
            found[team.id] = cluster.kubectl(*words).split()
        return found

    def wait_empty(self, nothing: dict[str, list[str]]) -> None:
        """Waits until nothing is left but what was there before."""
        try:
            wait_until(lambda: self.left() == nothing)
        except TimeoutError:
            assert self.left() == nothing


@contextlib.contextmanager
def training_stage(
    clusters: Clusters,
    database_url: str,
    *,
    quota_bytes: int = QUOTA_BYTES,
    seats: dict[str, Any] | None = None,
    counted: str = "",
) -> Iterator[TrainingStage]:
    """A stage whose server trains on this machine where no cluster is named.

    With `seats`, that section of its settings, pods of the cluster claim devices, or have one of a
    resource that is `counted`.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(pytest.MonkeyPatch.context()).setenv("TINKER_TELEMETRY", "0")
        cluster = stack.enter_context(clusters.open(CLUSTER))
        folder = stack.enter_context(reachable_folder())
        windlass, address = stack.enter_context(platform(folder, {CLUSTER: cluster}))
        base = make_model(folder / "toy")
        _trains(windlass.configs["all"], base, database_url, seats or {})
        stack.enter_context(running(windlass))
        owner = stack.enter_context(windlass.http())
        made = Journey(windlass, owner, {CLUSTER: cluster}, address)

        def there(home: str, port: int) -> dict[str, Any]:
            found = settings(cluster, home, port, made.egress(port))
            image = {"image": found["image"], "python": found["python"]}
            trainers = image | {"memory_bytes": ENGINE_BYTES}
            engines = engine_section(found) | {"trainers": trainers}
            if seats:
                # The node has few processors, of which others have most.
                engines["cpus"] = 0.05
                claimed = {"device_class": cluster.device_class()}
                device = {"resource": counted} if counted else claimed
                found["accelerators"] = [device | {"device": "cpu", "queues": [made.queue]}]
            return found | {"patience": {"setup": 3}, "engines": engines}

        agent = joined(
            owner, cluster, folder / CLUSTER, address=address, ca=windlass.ca, settings=there
        )
        made.agents[CLUSTER] = stack.enter_context(agent)
        made.ids[CLUSTER] = made.agents[CLUSTER].cluster_id
        if counted:
            cluster.offer(counted, 1)
        made.share_out(CLUSTER, memory=quota_bytes, devices={counted: 1} if counted else {})
        with Client(windlass.url, windlass.owner_key) as client:
            client.models.import_folder(BASE, base, for_everyone=True)
        for name, urgent in (("readers", False), ("urgent", True)):
            team = made.team(name, CLUSTER, urgent=urgent)
            cluster.apply(from_outside(team.namespace, cluster.host))
        yield TrainingStage(made, database_url.replace("+psycopg", ""))


def _trains(config: Path, base: Path, database_url: str, seats: dict[str, Any]) -> None:
    document = yaml.safe_load(config.read_text())
    document["agent"] = {"enabled": False}
    document["database"] = {"url": database_url}
    document["quotas"] = {"tuning_full_runs": 8}
    document["tuning"] = {
        "trainer": "lora",
        "model_folders": {BASE: str(base)},
        "full_parameter_trainers": 3 if seats else 2,
        "seats": seats,
    }
    config.write_text(yaml.safe_dump(document))
