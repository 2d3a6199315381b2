"""What operators' metrics say of tunnels."""

import contextlib
from pathlib import Path

import pytest
from prometheus_client import REGISTRY
from tests.support.fakes.stub_upstream import running_upstream
from tests.support.services.tunnel_plane import (
    access_to,
    ask,
    running_replica,
    start_agent,
)
from tests.support.waiting import until

from windlass.core.errors import Unavailable


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"windlass_tunnel_{name}", labels) or 0.0


async def test_streams_connections_and_failures_are_counted(
    database_url: str, tmp_path: Path
) -> None:
    failures = {"reason": "cluster_unreachable"}
    failed, dialled = value("dial_failures_total", **failures), value("dial_seconds_count")
    idle = value("connections")
    async with contextlib.AsyncExitStack() as stack:
        api = await stack.enter_async_context(running_upstream(tmp_path / "tls"))
        replica = await stack.enter_async_context(running_replica(database_url, tmp_path))
        identity = await replica.register("east")
        agent = start_agent(identity, replica.address, access_to(api))
        try:
            await until(lambda: value("control_streams") == 1)
            stream = await replica.connect(agent.cluster_id, None)
            assert value("connections") == idle + 1
            await ask(stream, "/version")
            await until(lambda: value("connections") == idle)
            assert value("dial_seconds_count") == dialled + 1
        finally:
            await agent.stop()
        await until(lambda: value("control_streams") == 0)
        with pytest.raises(Unavailable):
            await replica.connect(agent.cluster_id, None)
        assert value("dial_failures_total", **failures) == failed + 1
        assert value("connections") == idle
