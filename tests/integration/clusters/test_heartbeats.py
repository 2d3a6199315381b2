"""Heartbeats of agents, and the reply about their store."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.agents.cluster_agent import AgentClient
from tests.support.services.clusters import ControlPlane, running_control_plane

from windlass.clusters.storage.stores import Stores
from windlass.core.errors import Unauthenticated


@pytest.fixture
async def plane(database_url: str, tmp_path: Path) -> AsyncIterator[ControlPlane]:
    async with running_control_plane(database_url, tmp_path / "data") as plane:
        yield plane


async def test_one_that_met_the_end_of_its_cluster_says_so(plane: ControlPlane) -> None:
    """It was let in while the cluster was there; nobody took over, so it must not hear that."""
    enrolled = await plane.enroll()
    async with plane.channel() as channel:
        agent = AgentClient(channel, enrolled.credential, "session-1")
        await agent.watch()
        stores = Stores.on(plane.app.database, credential_seconds=60)
        assert await stores.clusters.heartbeat(enrolled.cluster_id, "session-1", b"")
        assert not await stores.clusters.heartbeat(enrolled.cluster_id, "session-2", b"")
        await stores.workloads.unregister(enrolled.cluster_id)
        with pytest.raises(Unauthenticated) as caught:
            await stores.clusters.heartbeat(enrolled.cluster_id, "session-1", b"")
        assert caught.value.reason == "cluster_unregistered"
