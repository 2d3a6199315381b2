"""Words of keepers, of which any may be a tenant's by now."""

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.keeper.v1 import keeper_pb2
from windlass_agent.executors.kubernetes.engines.keepers import Keepers, _bounded


def test_a_keeper_that_says_too_much_is_cut() -> None:
    said = keeper_pb2.EngineState(
        phase=pb.PHASE_SUCCEEDED,
        reason="r" * 10_000,
        message="m" * 10_000,
        adapters=[pb.LoadedAdapter(id="i" * 9000, error="e" * 9000) for _ in range(5000)],
        capabilities=pb.EngineCapabilities(routes=["/x" * 500] * 500),
    )
    kept = _bounded(said)
    assert kept.phase == pb.PHASE_STARTING, "no keeper says that an engine is over"
    assert len(kept.adapters) == 256
    assert kept.ByteSize() < 2 * 2**20


async def test_the_second_call_of_a_pod_ends_the_first() -> None:
    changes: list[int] = []
    keepers = Keepers(lambda: changes.append(1))
    running = keeper_pb2.EngineState(phase=pb.PHASE_RUNNING)
    first = keepers.begin("uid-1", running)
    second = keepers.begin("uid-1", keeper_pb2.EngineState(phase=pb.PHASE_STARTING))
    assert first.superseded
    keepers._forget(first)
    state = keepers.state("uid-1")
    assert state
    assert state.phase == pb.PHASE_STARTING
    keepers._forget(second)
    assert keepers.state("uid-1") is None
    assert changes
