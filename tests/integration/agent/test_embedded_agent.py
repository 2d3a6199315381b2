"""The agent inside a server: enrols itself, keeps its identity, and never takes the server down."""

import base64
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.fakes.job_desk import JobDesk
from tests.support.services.clusters import ControlPlane, running_control_plane
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.clusters.v1 import clusters_pb2_grpc as rpc
from windlass.api.jobs.v1 import jobs_pb2_grpc as jobs_rpc
from windlass.core.config import Settings
from windlass_agent.folders import socket_folder

# One for every server of a database.
MASTER_KEY = base64.b64encode(b"a" * 32).decode()


@asynccontextmanager
async def server(url: str, data: Path) -> AsyncIterator[ControlPlane]:
    jobs = (JobDesk(), jobs_rpc.add_JobsAgentServiceServicer_to_server)
    settings = Settings.model_validate({"master_key": {"key": MASTER_KEY}})
    async with running_control_plane(
        url, data, jobs=jobs, embedded_agent=True, settings=settings
    ) as plane:
        yield plane
    shutil.rmtree(socket_folder(data / "agent"))


async def live(plane: ControlPlane, count: int) -> list[pb.Cluster]:
    async def clusters() -> list[pb.Cluster]:
        return list((await plane.capacity()).clusters)

    return await until(clusters, holds=lambda found: len(found) == count)


async def unregister(plane: ControlPlane, cluster_id: str) -> None:
    async with plane.channel() as channel:
        await rpc.ClustersServiceStub(channel).UnregisterCluster(
            pb.UnregisterClusterRequest(cluster_id=cluster_id), **plane.tenant()
        )


async def test_it_is_a_cluster_and_stays_the_same_one(database_url: str, tmp_path: Path) -> None:
    async with server(database_url, tmp_path / "data") as plane:
        (first,) = await live(plane, 1)
        assert (first.name, first.executor) == ("local", "process")
        assert first.capacity.slots == 1
        assert "trl" in first.capacity.backends
    credential = tmp_path / "data" / "agent" / "credential"
    assert credential.stat().st_mode & 0o777 == 0o600
    async with server(database_url, tmp_path / "data") as plane:
        (again,) = await live(plane, 1)
        assert again.id == first.id


async def test_two_servers_on_one_postgres_are_two_clusters(
    database_url: str, tmp_path: Path
) -> None:
    async with (
        server(database_url, tmp_path / "a") as plane,
        server(database_url, tmp_path / "b"),
    ):
        assert {cluster.name for cluster in await live(plane, 2)} == {"local", "local-2"}


async def test_its_server_outlives_it_and_a_restart_brings_it_back(
    database_url: str, tmp_path: Path
) -> None:
    async with server(database_url, tmp_path / "data") as plane:
        (first,) = await live(plane, 1)
        await unregister(plane, first.id)
        credential = tmp_path / "data" / "agent" / "credential"
        await until(lambda: not credential.exists())
        assert await live(plane, 0) == []
    async with server(database_url, tmp_path / "data") as plane:
        (second,) = await live(plane, 1)
        assert second.id != first.id
