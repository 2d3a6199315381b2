"""Health and metrics of an agent that is a process of its own."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.support.agents.staged_agent import World, staged_world
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2 as pb

OURS = {
    "windlass_agent_call_failures", "windlass_agent_heartbeat_seconds",
    "windlass_agent_pick_seconds", "windlass_agent_picks",
    "windlass_agent_silence_seconds", "windlass_agent_slots", "windlass_agent_tunnel_connections",
    "windlass_agent_workloads", "windlass_build_info", "windlass_engine_cache_used_ratio",
    "windlass_engine_requests", "windlass_engine_tokens", "windlass_loop_failures",
    "windlass_sample_timestamp_seconds",
}  # fmt: skip
Samples = dict[tuple[str, ...], float]


@pytest.fixture
async def world(database_url: str, tmp_path: Path) -> AsyncIterator[World]:
    async with staged_world(database_url, tmp_path) as made:
        yield made


async def scraped(http: httpx.AsyncClient) -> tuple[set[str], Samples]:
    """Returns our families, and each sample by its name and the values of its labels."""
    page = (await http.get("/metrics")).text
    families = [one for one in text_string_to_metric_families(page) if "windlass" in one.name]
    samples = {
        (one.name, *one.labels.values()): one.value for each in families for one in each.samples
    }
    return {one.name for one in families}, samples


async def test_an_agent_answers_operators(world: World) -> None:
    # A fork would have what its parent counts, too.
    with world.agent_process(cold=True) as start:
        start()
        await world.put("job-1")
        await world.reach("job-1", pb.PHASE_RUNNING)
        address = (world.data / "operations").read_text().strip()
        assert address.startswith("http://127.0.0.1:")
        async with httpx.AsyncClient(base_url=address) as http:

            async def ready() -> bool:
                answer: dict[str, str] = (await http.get("/readyz")).json()
                return answer == {"control_plane": "ok"}

            await until(ready)
            families, samples = await scraped(http)
    # Of no service and of no database, since an agent has none.
    assert families == OURS
    assert samples["windlass_agent_workloads", "job", "running"] == 1
    assert samples["windlass_agent_workloads", "engine", "running"] == 0
    assert samples["windlass_agent_slots", "job", "used"] == 1
    assert samples["windlass_agent_slots", "job", "free"] == 1
    assert samples[("windlass_agent_heartbeat_seconds_count",)] >= 1
    assert 0 <= samples[("windlass_agent_silence_seconds",)] < 60
