"""Connections of an agent close when its credential ends."""

import asyncio
from collections.abc import Collection

import pytest
from tests.support.waiting import PATIENCE, settled, stays, until

from windlass.core.db.wake import Wake
from windlass.core.errors import AppError, Unauthenticated, Unavailable
from windlass.core.rpc.auth import AgentIdentity
from windlass.sessions.tunnel import credential_watch
from windlass.sessions.tunnel.credential_watch import CredentialWatch

OLD, NEW = b"old", b"new"


def unregistered() -> Unauthenticated:
    return Unauthenticated("This cluster is not registered.", reason="cluster_unregistered")


class Clusters:
    """Valid credentials, as the clusters service would report them."""

    def __init__(self) -> None:
        self.good = {OLD, NEW}
        self.away = False
        self.asked = list[set[bytes]]()

    async def authenticate(self, credential: bytes) -> None:
        if credential in await self.find_ended({credential}):
            raise unregistered()

    async def find_ended(self, credentials: Collection[bytes]) -> dict[bytes, AppError]:
        self.asked.append(set(credentials))
        if self.away:
            raise Unavailable("away")
        return {one: unregistered() for one in credentials if one not in self.good}

    def watch(self, wake: Wake | None = None) -> CredentialWatch:
        return CredentialWatch(wake or Wake(""), self.authenticate, self.find_ended)


@pytest.fixture
def clusters(monkeypatch: pytest.MonkeyPatch) -> Clusters:
    monkeypatch.setattr(credential_watch, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(credential_watch, "PAUSE_SECONDS", 0.0)
    return Clusters()


def agent(credential: bytes = OLD, cluster: str = "cluster-a") -> AgentIdentity:
    return AgentIdentity(cluster, "east", credential)


async def looked(clusters: Clusters) -> None:
    """Returns once the present state was seen."""
    before = len(clusters.asked)
    await until(lambda: len(clusters.asked) > before + 1)


async def test_streams_end_when_the_credential_does(clusters: Clusters) -> None:
    watch, ended = clusters.watch(), list[AppError]()
    with watch.over(agent(), "s1", ended.append), watch.over(agent(), "s1", ended.append):
        await looked(clusters)
        assert not ended
        clusters.good.clear()
        await until(lambda: len(ended) >= 1)
        assert ended[0].reason == "cluster_unregistered"


async def test_a_touch_is_looked_at_at_once(
    clusters: Clusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credential_watch, "POLL_SECONDS", 3600.0)
    wake = Wake("")
    watch, ended = clusters.watch(wake), list[AppError]()
    with watch.over(agent(), "s1", ended.append):
        await until(lambda: clusters.asked)
        clusters.good.clear()
        wake.touch("cluster:cluster-a")
        await until(lambda: ended)


async def test_the_next_credential_of_a_life_vouches_for_what_is_open(clusters: Clusters) -> None:
    watch, ended = clusters.watch(), list[AppError]()
    with watch.over(agent(OLD), "s1", ended.append), watch.over(agent(NEW), "s1", ended.append):
        clusters.good = {NEW}
        await looked(clusters)
        assert not ended


async def test_another_life_does_not(clusters: Clusters) -> None:
    watch = clusters.watch()
    old, new = list[AppError](), list[AppError]()
    with watch.over(agent(OLD), "s1", old.append), watch.over(agent(NEW), "s2", new.append):
        clusters.good = {NEW}
        await until(lambda: old)
        assert not new


async def test_doubt_is_borne_for_a_while(
    clusters: Clusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch, ended = clusters.watch(), list[AppError]()
    with watch.over(agent(), "s1", ended.append):
        clusters.away = True
        await looked(clusters)
        assert not ended
        monkeypatch.setattr(credential_watch, "DOUBT_SECONDS", 0.0)
        await until(lambda: ended)


async def test_many_are_looked_at_together(clusters: Clusters) -> None:
    watch, old, new = clusters.watch(), list[AppError](), list[AppError]()
    clusters.good = {OLD}
    with (
        watch.over(agent(OLD, "cluster-a"), "s1", old.append),
        watch.over(agent(NEW, "cluster-b"), "s1", new.append),
    ):
        await until(lambda: new)
        await looked(clusters)
        assert not old
        assert all(asked == {OLD, NEW} for asked in clusters.asked)


async def test_each_cluster_that_is_touched_is_looked_at(
    clusters: Clusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credential_watch, "POLL_SECONDS", 3600.0)
    wake = Wake("")
    watch = clusters.watch(wake)
    with watch.over(agent(OLD), "s1", lambda _: None):
        with watch.over(agent(NEW, "cluster-b"), "s1", lambda _: None):
            for cluster in ("a", "b"):
                await settled(lambda: len(clusters.asked))
                clusters.asked.clear()
                wake.touch(f"cluster:cluster-{cluster}")
                await until(lambda: clusters.asked)
        await settled(lambda: len(clusters.asked))
        clusters.asked.clear()
        wake.touch("cluster:cluster-b")
        await stays(lambda: not clusters.asked)


async def test_nobody_looks_when_nothing_is_open(clusters: Clusters) -> None:
    watch = clusters.watch()
    others = asyncio.all_tasks()
    with watch.over(agent(), "s1", lambda _: None):
        await looked(clusters)
        looking = asyncio.all_tasks() - others
    assert looking
    async with asyncio.timeout(PATIENCE):
        await asyncio.wait(looking)
    assert asyncio.all_tasks() <= others
