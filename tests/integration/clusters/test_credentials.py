"""Credentials of agents: they end, rotate without a gap, and nobody is locked out by chance."""

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
import sqlalchemy as sa
from tests.support.agents.cluster_agent import AgentClient, refused
from tests.support.services.clusters import ControlPlane, running_control_plane
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.clusters.v1 import clusters_pb2_grpc as rpc
from windlass.clusters.storage.stores import Stores
from windlass.clusters.storage.tables import clusters, credentials
from windlass.clusters.transport import agent_service
from windlass.core.config import AgentsSection, Settings
from windlass.core.rpc.auth import digest

EXPIRED = (grpc.StatusCode.UNAUTHENTICATED, "credential_expired")
SUPERSEDED = (grpc.StatusCode.FAILED_PRECONDITION, "credential_superseded")


async def accepted(plane: ControlPlane, credential: str) -> str:
    """The cluster of a credential, asked past the boundary's memory."""
    request = pb.AuthenticateAgentRequest(digest=digest(credential))
    return str((await plane.internal.AuthenticateAgent(request)).cluster_id)


async def later(plane: ControlPlane, span: timedelta) -> None:
    """Lets time pass for every credential."""
    times = {name: credentials.c[name] - span for name in ("created_at", "expires_at", "used_at")}
    async with plane.app.database.begin() as connection:
        await connection.execute(credentials.update().values(**times))


async def live(plane: ControlPlane, cluster_id: str) -> int:
    query = sa.select(sa.func.count()).where(
        credentials.c.cluster_id == cluster_id, credentials.c.expires_at > sa.func.now()
    )
    async with plane.app.database.autocommit() as connection:
        return int((await connection.execute(query)).scalar_one())


async def enroll(plane: ControlPlane, key: str) -> pb.EnrollResponse:
    async with plane.channel() as channel:
        stub = rpc.ClustersAgentServiceStub(channel)
        return await stub.Enroll(pb.EnrollRequest(registration_key=key))


async def rekey(
    plane: ControlPlane, operators: rpc.ClustersServiceAsyncStub, cluster_id: str
) -> str:
    request = pb.RekeyClusterRequest(cluster_id=cluster_id)
    answer = await operators.RekeyCluster(request, **plane.tenant())
    assert answer.cluster.id == cluster_id
    return str(answer.registration_key)


async def test_a_credential_says_when_it_ends(enrolled: pb.EnrollResponse) -> None:
    assert abs(enrolled.expires_at - time.time() - 86400) < 30
    assert abs(enrolled.lifetime_seconds - 86400) < 30


async def test_the_old_one_is_good_until_a_minute_after_the_new_ones_first_use(
    plane: ControlPlane, agent: AgentClient, enrolled: pb.EnrollResponse
) -> None:
    fresh = await agent.rotate()
    assert fresh.cluster_id == enrolled.cluster_id
    assert fresh.credential != enrolled.credential
    await later(plane, timedelta(hours=2))
    assert await accepted(plane, enrolled.credential), "the new one never arrived anywhere"
    assert await accepted(plane, fresh.credential)
    await later(plane, timedelta(seconds=55))
    assert await accepted(plane, enrolled.credential)
    await later(plane, timedelta(seconds=6))
    assert await refused(accepted(plane, enrolled.credential)) == EXPIRED
    assert await accepted(plane, fresh.credential)


async def test_those_that_are_not_good_are_found_together(
    plane: ControlPlane, agent: AgentClient, enrolled: pb.EnrollResponse
) -> None:
    other, unused = await plane.enroll("west"), await agent.rotate()
    await later(plane, timedelta(hours=2))
    digests = [digest(one.credential) for one in (enrolled, unused, other)]
    request = pb.FindEndedCredentialsRequest(digests=[*digests, digest("nobody's"), digests[0]])
    (gone,) = (await plane.internal.FindEndedCredentials(request)).ended
    assert (gone.digest, gone.reason) == (digest("nobody's"), "cluster_unregistered")
    await later(plane, timedelta(minutes=2))
    (gone,) = (await plane.internal.FindEndedCredentials(request)).ended
    assert gone.reason == "cluster_unregistered", "to ask is no use, which would end the first"
    assert await accepted(plane, unused.credential)
    await later(plane, timedelta(minutes=2))
    found = (await plane.internal.FindEndedCredentials(request)).ended
    assert {one.digest: one.reason for one in found} == {
        digest("nobody's"): "cluster_unregistered",
        digests[0]: "credential_expired",
    }
    for one in found:
        assert one.message


async def test_an_answer_that_got_lost_is_asked_for_again(
    plane: ControlPlane, agent: AgentClient, channel: grpc.aio.Channel
) -> None:
    lost = await agent.rotate()
    again = await agent.rotate()
    assert await live(plane, again.cluster_id) == 2
    assert (await refused(accepted(plane, lost.credential)))[0] is grpc.StatusCode.UNAUTHENTICATED
    assert await AgentClient(channel, again.credential).rotate()


async def test_never_more_than_two_are_good(
    plane: ControlPlane, agent: AgentClient, channel: grpc.aio.Channel
) -> None:
    for _ in range(20):
        fresh = await agent.rotate()
        assert await live(plane, fresh.cluster_id) <= 2
        agent = AgentClient(channel, fresh.credential)
    async with plane.app.database.autocommit() as connection:
        assert len((await connection.execute(credentials.select())).all()) <= 16


async def test_one_that_has_a_successor_in_use_gets_no_other(
    plane: ControlPlane, agent: AgentClient
) -> None:
    fresh = await agent.rotate()
    await accepted(plane, fresh.credential)
    assert await refused(agent.rotate()) == SUPERSEDED


async def test_rotations_at_once_leave_one_way_on(
    plane: ControlPlane, agent: AgentClient, channel: grpc.aio.Channel
) -> None:
    answers = await asyncio.gather(*(agent.rotate() for _ in range(6)))
    good = []
    for answer in answers:
        try:
            good.append(await accepted(plane, answer.credential))
        except grpc.aio.AioRpcError:
            continue
    assert len(good) == 1


async def test_the_agent_inside_a_server_keeps_its_own(
    plane: ControlPlane, channel: grpc.aio.Channel
) -> None:
    local = await plane.internal.EnrollLocal(pb.EnrollLocalRequest(name="local"))
    assert (local.expires_at, local.lifetime_seconds) == (0, 0)
    code, reason = await refused(AgentClient(channel, local.credential).rotate())
    assert (code, reason) == (grpc.StatusCode.FAILED_PRECONDITION, "credential_permanent")


async def test_who_was_away_too_long_enrols_again_as_the_same_cluster(
    plane: ControlPlane,
    operators: rpc.ClustersServiceAsyncStub,
    agent: AgentClient,
    enrolled: pb.EnrollResponse,
) -> None:
    await agent.watch()
    await later(plane, timedelta(days=40))
    # The last credential of a cluster is remembered, so that its agent hears what happened.
    await Stores.on(plane.app.database, credential_seconds=1).credentials.sweep()
    assert await refused(accepted(plane, enrolled.credential)) == EXPIRED
    key = await rekey(plane, operators, enrolled.cluster_id)
    again = await enroll(plane, key)
    assert again.cluster_id == enrolled.cluster_id
    assert await accepted(plane, again.credential) == enrolled.cluster_id
    await Stores.on(plane.app.database, credential_seconds=1).credentials.sweep()
    code, reason = await refused(accepted(plane, enrolled.credential))
    assert (code, reason) == (grpc.StatusCode.UNAUTHENTICATED, "cluster_unregistered")


async def test_a_new_key_ends_older_ones_and_then_the_agent_that_ran(
    plane: ControlPlane,
    operators: rpc.ClustersServiceAsyncStub,
    agent: AgentClient,
    enrolled: pb.EnrollResponse,
) -> None:
    first = await rekey(plane, operators, enrolled.cluster_id)
    second = await rekey(plane, operators, enrolled.cluster_id)
    spent = (grpc.StatusCode.UNAUTHENTICATED, "invalid_registration_key")
    assert await refused(enroll(plane, first)) == spent
    assert await accepted(plane, enrolled.credential)
    fresh = await enroll(plane, second)
    assert await refused(enroll(plane, second)) == spent
    await accepted(plane, fresh.credential)
    await later(plane, timedelta(seconds=61))
    assert await refused(accepted(plane, enrolled.credential)) == EXPIRED


@pytest.mark.parametrize("first", ["rekey", "enroll", "unregister"])
async def test_who_enrols_while_its_key_is_ended_waits_and_never_for_ever(
    plane: ControlPlane, operators: rpc.ClustersServiceAsyncStub, first: str
) -> None:
    registered = await plane.register()
    cluster_id = registered.cluster.id
    gone = pb.UnregisterClusterRequest(cluster_id=cluster_id)
    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        "enroll": lambda: enroll(plane, registered.registration_key),
        "rekey": lambda: rekey(plane, operators, cluster_id),
        "unregister": lambda: operators.UnregisterCluster(gone, **plane.tenant()),
    }
    second = "rekey" if first == "enroll" else "enroll"
    async with plane.app.database.begin() as connection:
        held = sa.select(clusters.c.id).where(clusters.c.id == cluster_id).with_for_update()
        await connection.execute(held)
        done = asyncio.ensure_future(calls[first]())
        await queued(plane, 1)
        late = asyncio.ensure_future(calls[second]())
        await queued(plane, 2)
    await done
    if second == "rekey":
        await late
    else:
        spent = (grpc.StatusCode.UNAUTHENTICATED, "invalid_registration_key")
        assert await refused(late) == spent


async def queued(plane: ControlPlane, count: int) -> None:
    """Until so many transactions wait for somebody's lock."""
    query = sa.text(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    async with plane.app.database.autocommit() as connection:

        async def waiting() -> int:
            return int((await connection.execute(query)).scalar_one())

        await until(waiting, holds=lambda found: found >= count)


async def test_a_key_for_nothing(
    plane: ControlPlane, operators: rpc.ClustersServiceAsyncStub
) -> None:
    request = pb.RekeyClusterRequest(cluster_id="cluster-none")
    code, _ = await refused(operators.RekeyCluster(request, **plane.tenant()))
    assert code is grpc.StatusCode.NOT_FOUND
    code, _ = await refused(operators.RekeyCluster(request, **plane.tenant(permissions=("read",))))
    assert code is grpc.StatusCode.PERMISSION_DENIED


@pytest.fixture
async def hasty(database_url: str, tmp_path: Path) -> AsyncIterator[ControlPlane]:
    """Its credentials live for three seconds."""
    settings = Settings(agents=AgentsSection(credential_seconds=3))
    async with running_control_plane(database_url, tmp_path / "data", settings=settings) as plane:
        yield plane
        shutil.rmtree(plane.socket.parent)


async def test_a_stream_ends_with_its_credential(
    hasty: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_service, "LOOK_SECONDS", 3600.0)
    enrolled = await hasty.enroll()
    async with hasty.channel() as channel:
        agent = AgentClient(channel, enrolled.credential, executor="kubernetes")
        assert (await agent.watch()).snapshot
        assert await refused(agent.next()) == EXPIRED
        assert await refused(accepted(hasty, enrolled.credential)) == EXPIRED
        assert await refused(agent.watch()) == EXPIRED
