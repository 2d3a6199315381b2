"""Use of a pod's cache: what its engine's status says of it."""

from tests.unit.agent.kubernetes.test_tracked_engine import (
    LOADS,
    POD,
    SERVES,
    see,
    shown,
    told,
    workload,
)

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.keeper.v1 import keeper_pb2


def serves(used: float | None) -> keeper_pb2.EngineState:
    load = keeper_pb2.EngineLoad(cache_used=used)
    return keeper_pb2.EngineState(phase=pb.PHASE_RUNNING, load=load)


def test_its_status_says_waits_and_gpus_too() -> None:
    engine = told(workload())
    load = keeper_pb2.EngineLoad(running=4, waiting=9, wait_seconds=2.5)
    waits = keeper_pb2.EngineState(phase=pb.PHASE_RUNNING, load=load)
    see(engine, shown(workload(), POD), waits, gpu=0.7)
    expected = pb.ServingLoad(wait_seconds=2.5, requests_at_once=4, gpu_percent=70, requests=13)
    assert engine.status().load == expected
    see(engine, shown(workload(), POD), LOADS, at=1, gpu=0.7)
    assert not engine.status().HasField("load"), "it serves no more"


def test_its_status_says_the_use_of_its_cache_in_steps() -> None:
    engine = told(workload())
    see(engine, shown(workload(), POD), SERVES)
    assert not engine.status().HasField("load"), "its keeper has yet to say"
    see(engine, shown(workload(), POD), serves(0.5), at=1)
    assert engine.status().load.cache_percent == 50
    # Looks come every second, and a keeper's words every ten.
    told_at = [engine.status().load.cache_percent]
    for second in range(2, 120):
        see(engine, shown(workload(), POD), serves(0.96), at=second)
        told_at.append(engine.status().load.cache_percent)
    assert told_at[-1] == 95
    assert len(set(told_at)) <= 5
    see(engine, shown(workload(), POD), serves(None), at=120)
    assert not engine.status().load.HasField("cache_percent"), "it does not say"
    see(engine, shown(workload(), POD), serves(0.0), at=121)
    assert engine.status().load.HasField("cache_percent")
    see(engine, shown(workload(), POD), LOADS, at=122)
    assert not engine.status().HasField("load"), "it serves no more"
