"""Connections of an agent close when its credential ends."""

import asyncio

import pytest
from tests.support.waiting import PATIENCE, until

from windlass.core.db.wake import Wake
from windlass.core.errors import AppError, Unauthenticated, Unavailable
from windlass.core.rpc.auth import AgentIdentity
from windlass.sessions.tunnel import credential_watch
from windlass.sessions.tunnel.credential_watch import CredentialWatch

OLD, NEW = b"old", b"new"


class Clusters:
    """Valid credentials, as the clusters service would report them."""

    def __init__(self) -> None:
        self.good = {OLD, NEW}
        self.away = False
        self.asked = 0

    async def authenticate(self, credential: bytes) -> None:
        self.asked += 1
        if self.away:
            raise Unavailable("away")
        if credential not in self.good:
            raise Unauthenticated("This cluster is not registered.", reason="cluster_unregistered")


@pytest.fixture
def clusters(monkeypatch: pytest.MonkeyPatch) -> Clusters:
    monkeypatch.setattr(credential_watch, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(credential_watch, "PAUSE_SECONDS", 0.0)
    return Clusters()


def agent(credential: bytes = OLD) -> AgentIdentity:
    return AgentIdentity("cluster-a", "east", credential)


async def looked(clusters: Clusters) -> None:
    """Once the present state was seen by every guard."""
    before = clusters.asked
    await until(lambda: clusters.asked > before + 4)


async def test_streams_end_when_the_credential_does(clusters: Clusters) -> None:
    watch, ended = CredentialWatch(Wake(""), clusters.authenticate), list[AppError]()
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
    watch, ended = CredentialWatch(wake, clusters.authenticate), list[AppError]()
    with watch.over(agent(), "s1", ended.append):
        await until(lambda: clusters.asked)
        clusters.good.clear()
        wake.touch("cluster:cluster-a")
        await until(lambda: ended)


async def test_the_next_credential_of_a_life_vouches_for_what_is_open(clusters: Clusters) -> None:
    watch, ended = CredentialWatch(Wake(""), clusters.authenticate), list[AppError]()
    with watch.over(agent(OLD), "s1", ended.append), watch.over(agent(NEW), "s1", ended.append):
        clusters.good = {NEW}
        await looked(clusters)
        assert not ended


async def test_another_life_does_not(clusters: Clusters) -> None:
    watch = CredentialWatch(Wake(""), clusters.authenticate)
    old, new = list[AppError](), list[AppError]()
    with watch.over(agent(OLD), "s1", old.append), watch.over(agent(NEW), "s2", new.append):
        clusters.good = {NEW}
        await until(lambda: old)
        assert not new


async def test_doubt_is_borne_for_a_while(
    clusters: Clusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch, ended = CredentialWatch(Wake(""), clusters.authenticate), list[AppError]()
    with watch.over(agent(), "s1", ended.append):
        clusters.away = True
        await looked(clusters)
        assert not ended
        monkeypatch.setattr(credential_watch, "DOUBT_SECONDS", 0.0)
        await until(lambda: ended)


async def test_nobody_looks_when_nothing_is_open(clusters: Clusters) -> None:
    watch = CredentialWatch(Wake(""), clusters.authenticate)
    others = asyncio.all_tasks()
    with watch.over(agent(), "s1", lambda _: None):
        await looked(clusters)
        looking = asyncio.all_tasks() - others
    assert looking
    async with asyncio.timeout(PATIENCE):
        await asyncio.wait(looking)
    assert asyncio.all_tasks() <= others
