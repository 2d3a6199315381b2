"""The agent's half of credentials: it renews them in time, and finds its way back.

The control plane, its line and the file are real; nothing is run, since no workload is put.
"""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.support.services.clusters import ControlPlane, running_control_plane
from tests.support.waiting import PATIENCE, stays, until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.clusters.v1 import clusters_pb2_grpc as rpc
from windlass.core.config import AgentsSection, Settings
from windlass_agent.control_plane import credentials
from windlass_agent.control_plane.connection import ControlPlane as Line
from windlass_agent.control_plane.connection import enroll
from windlass_agent.control_plane.credentials import (
    Credential,
    FileCredentials,
    Renewal,
    first_credential,
)

# Longer than a busy machine leaves a process waiting, and where its end is waited for.
LIFETIME, MOMENT = 10.0, 3.0
short_lived = pytest.mark.parametrize("lifetime", [MOMENT], ids=[""])


@pytest.fixture
def lifetime() -> float:
    """The life of a credential, in seconds."""
    return LIFETIME


@pytest.fixture
async def plane(database_url: str, tmp_path: Path, lifetime: float) -> AsyncIterator[ControlPlane]:
    """Its credentials live for seconds."""
    settings = Settings(agents=AgentsSection(credential_seconds=lifetime))
    async with running_control_plane(database_url, tmp_path / "data", settings=settings) as plane:
        yield plane
        shutil.rmtree(plane.socket.parent)


class Site:
    """An agent's credentials in a folder."""

    def __init__(self, plane: ControlPlane, folder: Path):
        self.plane = plane
        self.path = folder / "credential"
        self.store = FileCredentials(self.path)
        self.keys: list[str] = []

    async def enroll(self) -> pb.EnrollResponse:
        """Spends the last key that an operator gave."""
        if not self.keys:
            raise LookupError("no registration key")
        return await enroll(self.plane.address, self.keys.pop())

    @contextlib.asynccontextmanager
    async def line(self) -> AsyncIterator[Line]:
        credential = await first_credential(self.store, self.enroll)
        address = self.plane.address
        line = Line(clusters=address, jobs=address, credential=credential.secret)
        try:
            yield line
        finally:
            await line.close()

    @contextlib.asynccontextmanager
    async def renewing(self, line: Line, store: Any = None) -> AsyncIterator[None]:
        task = asyncio.create_task(Renewal(line, store or self.store, self.enroll).run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def stored(self) -> str:
        return self.path.read_text()


@pytest.fixture
async def site(plane: ControlPlane, tmp_path: Path) -> Site:
    site = Site(plane, tmp_path)
    site.keys.append((await plane.register()).registration_key)
    return site


async def heard(line: Line) -> bool:
    """True where the control plane takes this line's word."""
    try:
        await line.heartbeat("session-1", pb.Capacity())
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.UNAUTHENTICATED:
            return False
        raise
    return True


async def test_it_outlives_many_credentials(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "RENEW_AT", (0.05, 0.1))
    now = asyncio.get_running_loop().time
    async with site.line() as line:
        over = now() + LIFETIME
        seen = {site.stored()}
        async with site.renewing(line):
            # Longer than the life of the first, without ever being refused.
            async def renewed() -> bool:
                assert await heard(line)
                seen.add(site.stored())
                return now() > over and len(seen) >= 6

            await until(renewed)
        assert site.path.stat().st_mode & 0o777 == 0o600
        stored = await site.store.load()
        assert stored is not None
        assert stored.secret == line.credential
        assert stored.cluster_id.startswith("cluster-")


@short_lived
async def test_who_slept_too_long_is_let_in_by_a_new_key(site: Site, plane: ControlPlane) -> None:
    async with site.line() as line:
        before = await site.store.load()

        async def refused() -> bool:
            return not await heard(line)

        await until(refused)
        async with site.renewing(line):
            assert before is not None
            async with plane.channel() as channel:
                answer = await rpc.ClustersServiceStub(channel).RekeyCluster(
                    pb.RekeyClusterRequest(cluster_id=before.cluster_id), **plane.tenant()
                )
            # As the file of the key appears where the agent looks for it.
            site.keys.append(answer.registration_key)
            await until(lambda: heard(line))
        after = await site.store.load()
        assert after is not None
        assert (after.cluster_id, after.secret != before.secret) == (before.cluster_id, True)


async def test_a_newer_one_in_the_store_is_taken(site: Site) -> None:
    """Its life before rotated, and stored it after this one had loaded."""
    async with site.line() as line, site.line() as newer:
        answer = await newer.rotate()
        newer.use(answer.credential)
        assert await heard(newer)
        await site.store.save(Credential(answer.credential, answer.cluster_id))
        async with site.renewing(line):
            await until(lambda: line.credential not in (answer.credential, ""))
            await until(lambda: heard(line))


async def test_what_cannot_be_stored_is_not_used(site: Site) -> None:
    class Full(FileCredentials):
        async def save(self, credential: Credential) -> None:
            raise OSError("no space left")

    async with site.line() as line:
        before = line.credential
        async with site.renewing(line, Full(site.path)):

            async def goes_on() -> bool:
                return await heard(line) and line.credential == before

            await stays(goes_on, 0.5)
        # Space again: those that were given in vain did not end the one in use.
        async with site.renewing(line):
            await until(lambda: line.credential != before)
            assert await heard(line)


@short_lived
async def test_a_watch_that_ends_for_its_age_is_taken_up_with_the_next(site: Site) -> None:
    async with site.line() as line, site.renewing(line):
        request = pb.WatchRequest(session_id="session-1", executor="process")
        ends = 0
        async with asyncio.timeout(PATIENCE):
            while ends < 2:
                with contextlib.suppress(grpc.aio.AioRpcError):
                    async for delta in line.watch(request):
                        assert delta.snapshot
                ends += 1


async def test_a_file_of_the_secret_alone_is_good(site: Site, plane: ControlPlane) -> None:
    enrolled = await site.enroll()
    site.path.write_text(enrolled.credential + "\n")
    async with site.line() as line, site.renewing(line):
        await until(lambda: line.credential != enrolled.credential)
        stored = await site.store.load()
        assert stored is not None
        assert stored.cluster_id == enrolled.cluster_id
