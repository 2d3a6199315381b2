"""The clusters service and its callers."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from tests.support.agents.cluster_agent import AgentClient
from tests.support.services.clusters import ControlPlane, running_control_plane

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.clusters.v1 import clusters_pb2_grpc as rpc


@pytest.fixture
async def plane(database_url: str, tmp_path: Path) -> AsyncIterator[ControlPlane]:
    async with running_control_plane(database_url, tmp_path / "data") as plane:
        yield plane
        shutil.rmtree(plane.socket.parent)


@pytest.fixture
async def channel(plane: ControlPlane) -> AsyncIterator[grpc.aio.Channel]:
    async with plane.channel() as channel:
        yield channel


@pytest.fixture
def operators(channel: grpc.aio.Channel) -> rpc.ClustersServiceAsyncStub:
    """ClustersService."""
    return rpc.ClustersServiceStub(channel)


@pytest.fixture
async def enrolled(plane: ControlPlane) -> pb.EnrollResponse:
    return await plane.enroll()


@pytest.fixture
async def agent(channel: grpc.aio.Channel, enrolled: pb.EnrollResponse) -> AgentClient:
    """The agent of a cluster of Kubernetes, before its first call."""
    return AgentClient(channel, enrolled.credential, executor="kubernetes")
