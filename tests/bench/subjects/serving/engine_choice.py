"""Choice of an engine among 64, and a plan of 1,000 models on 100 clusters; nothing else runs.

The floor of a choice is Python's own `min` over as many numbers.
"""

import json
import time
from collections.abc import Callable
from itertools import count

from tests.bench.figures import Figure, Options, at_most, plain

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.gateway.inference.engines import Engines
from windlass.gateway.inference.head import read_head
from windlass.gateway.inference.routes import EngineEndpoint
from windlass.inference.domain import (
    RUNNING,
    Engine,
    InferencePolicy,
    Name,
    Rows,
    Serving,
    View,
    WantedVersion,
)
from windlass.inference.planning import Planner
from windlass.inference.planning.scaling import Scalers

REPLICAS, MODELS, CLUSTERS, ADAPTERS = 64, 1000, 100, 12
NOW = 1_000_000.0
POLICY = InferencePolicy("builtin", 10_000, 8, 600.0, 1800.0)


async def measure(options: Options) -> list[Figure]:
    """See the module."""
    rounds = 200 if options.quick else 5000
    engines = Engines()
    there = [
        EngineEndpoint(f"eng-{one}", f"tunnel://east/eng-{one}", frozenset())
        for one in range(REPLICAS)
    ]
    loads = [number % 7 for number in range(REPLICAS)]
    floor = _microseconds(lambda: min(loads), rounds)
    least = _microseconds(lambda: engines.choose(there), rounds)
    kept = _microseconds(lambda: engines.choose(there, 12_345), rounds)
    head = read_head(_conversation(20))
    number = _microseconds(lambda: head.conversation("org-a"), rounds)
    rows, view = _world()
    scalers, numbers = Scalers(), count()
    plans = 2 if options.quick else 10

    def plan() -> None:
        Planner(rows, view, POLICY, lambda: f"eng-{next(numbers)}", scalers).plan()

    planned = _microseconds(plan, plans) / 1000
    return [
        at_most("choice_among_64", kept, "µs", 10).beside("min of 64 numbers", floor),
        at_most("choice_among_64_least_busy", least, "µs", 10).beside("min of 64 numbers", floor),
        plain("conversation_number_20_messages", number, "µs"),
        at_most("plan_1000_models_100_clusters", planned, "ms", 100),
    ]


def _microseconds(work: Callable[[], object], rounds: int) -> float:
    work()
    began = time.perf_counter()
    for _ in range(rounds):
        work()
    return (time.perf_counter() - began) / rounds * 1e6


def _conversation(turns: int) -> bytes:
    said = [
        {"role": "assistant" if turn % 2 else "user", "content": "word " * 50}
        for turn in range(turns)
    ]
    return json.dumps({"model": "m", "messages": said}).encode()


def _world() -> tuple[Rows, View]:
    """Models that are served by one engine each, all of them wanted.

    A tenth is scaled by load, and has more adapters in use than places.
    """
    models = [f"mv-{number}" for number in range(MODELS)]
    clusters = {
        f"c-{number}": pb.Cluster(
            id=f"c-{number}", live=True, shared=True, embedded=True, roles=["engines"],
            capacity=pb.Capacity(engines=["builtin"], engine_slots=64),
        )
        for number in range(CLUSTERS)
    }  # fmt: skip
    names = {model: Name(model, "proj-a", "org-a", model, model) for model in models}
    tuned = {model: [f"{model}-{one}" for one in range(ADAPTERS)] for model in models[::10]}
    for model, adapters in tuned.items():
        names |= {one: Name(one, "proj-a", "org-a", one, model) for one in adapters}
    engines = [
        Engine(
            id=f"eng-{model}", version_id=model, model=model, project_id="proj-a",
            organization_id="org-a", cluster_id=f"c-{number % CLUSTERS}", engine="builtin",
            desired=RUNNING, generation=1, put_generation=1, created_at=NOW - 100, urls_at=NOW,
            adapters=tuple(tuned.get(model, ())[:POLICY.max_adapters]),
        )
        for number, model in enumerate(models)
    ]  # fmt: skip
    statuses = {
        one.id: pb.WorkloadStatus(
            workload_id=one.id, generation=1, phase=pb.PHASE_RUNNING, endpoint="unix:///x"
        )
        for one in engines
    }
    wants = [WantedVersion(one, name.engine_version_id, NOW, NOW - 100)
             for one, name in names.items()]  # fmt: skip
    servings = [
        Serving("proj-a", model, "org-a", model, model, 1, NOW - 100, max_replicas=4)
        for model in models[: MODELS // 10]
    ]
    view = View(names=names, statuses=statuses, clusters=clusters)
    open_requests = {one: 1 for adapters in tuned.values() for one in adapters}
    loads = dict.fromkeys(models, 7)
    return Rows(NOW, engines, wants, servings, loads=loads, adapter_loads=open_requests), view
