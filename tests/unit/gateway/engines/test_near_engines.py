"""Of engines that are equally busy the nearest gets a request, and none for being near alone."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.api.sessions.v1.sessions_pb2 import Chunk
from windlass.gateway.inference.engines import EngineConnectionPool, Engines
from windlass.gateway.inference.engines.choice import BUSIER
from windlass.gateway.inference.engines.pool import NEAR_SECONDS
from windlass.gateway.inference.routes import EngineEndpoint

HERE, ADDRESS, TUNNEL = "unix:///run/e-1/s", "http://10.0.0.7:8000", "tunnel://east/eng-1"


class Call:
    """A call of the tunnel that opens after a while, in place of a cluster's that is far away."""

    def __init__(self, seconds: float, *, relayed: bool):
        self._seconds = seconds
        self._relayed = relayed
        self.answered = False

    async def write(self, chunk: Chunk) -> None:
        """Takes every chunk."""

    async def read(self) -> Any:
        """Says once that the connection is open, and no more."""
        if self.answered:
            await asyncio.Event().wait()
        self.answered = True
        await asyncio.sleep(self._seconds)
        return Chunk(relayed=self._relayed)

    def cancel(self) -> None:
        """Ends the call."""


class Tunnels:
    """Lanes of a tunnel whose calls open after so long."""

    def __init__(self, seconds: float):
        self.seconds = seconds
        self.relayed = False

    async def open(self, _: Chunk) -> Call:
        """Opens a call."""
        return Call(self.seconds, relayed=self.relayed)


def endpoints(*addresses: str) -> list[EngineEndpoint]:
    return [EngineEndpoint(f"eng-{n}", one, frozenset()) for n, one in enumerate(addresses)]


def choice(
    engines: Engines, there: list[EngineEndpoint], conversation: int = 0
) -> EngineConnectionPool:
    found = engines.choose(there, conversation)
    assert found is not None
    return found


@pytest.mark.parametrize("near", [HERE, ADDRESS])
async def test_what_is_reached_directly_comes_before_a_tunnel(near: str) -> None:
    engines, there = Engines(), endpoints(TUNNEL, near, "tunnel://west/eng-2")
    assert {choice(engines, there).address for _ in range(20)} == {near}
    choice(engines, there).active += 1
    assert choice(engines, there).address != near, "it is busier than the others"


async def test_engines_that_are_equally_near_share_requests() -> None:
    engines, there = Engines(), endpoints(HERE, ADDRESS, TUNNEL)
    chosen = Counter(choice(engines, there).address for _ in range(200))
    assert set(chosen) == {HERE, ADDRESS}
    assert min(chosen.values()) > 50


@given(
    st.lists(st.tuples(st.integers(0, 31), st.integers(0, 30)), min_size=2, max_size=8),
    st.integers(1, 2**50),
)
async def test_distance_decides_between_equally_busy_engines_alone(
    engines_there: list[tuple[int, int]], conversation: int
) -> None:
    engines = Engines()
    there = endpoints(*(f"tunnel://east/eng-{n}" for n in range(len(engines_there))))
    pools = [engines._pool(one.address) for one in there]
    for pool, (distance, active) in zip(pools, engines_there, strict=True):
        pool.distance, pool.active = distance, active
    least = min(active for _, active in engines_there)
    found = choice(engines, there)
    assert (found.active, found.distance) == min((one.active, one.distance) for one in pools)
    # A conversation stays where it is, however far that is.
    home = choice(engines, there, conversation)
    for pool in pools:
        pool.distance = 0
    again = choice(engines, there, conversation)
    assert home.active <= least + BUSIER
    assert again is home or again.active == home.active == least


async def made(pool: EngineConnectionPool, times: int = 10) -> int:
    """Returns the distance after some connections, of which the fastest counts."""
    for _ in range(times):
        assert await pool.reachable()
    return pool.distance


async def test_a_tunnel_is_farther_and_one_behind_another_replica_more_so(tmp_path: Path) -> None:
    async def nothing(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    tunnels = Tunnels(0.0)
    stub: Any = tunnels
    async with await asyncio.start_unix_server(nothing, tmp_path / "s"):
        here = EngineConnectionPool(f"unix://{tmp_path}/s")
        east, west = EngineConnectionPool(TUNNEL, stub), EngineConnectionPool(TUNNEL, stub)
        assert (here.distance, east.distance) == (0, 1), "as far as is known before"
        assert await made(here) == 0
        assert await made(east) == 1
        tunnels.relayed = True
        assert await made(west) == 2
        # The agent has come to this replica.
        tunnels.relayed = False
        assert await made(west) == 1


async def test_what_takes_long_to_connect_to_is_farther_still() -> None:
    tunnels = Tunnels(5 * NEAR_SECONDS)
    stub: Any = tunnels
    east = EngineConnectionPool(TUNNEL, stub)
    far = await made(east, 1)
    assert far >= 1 + 3, "four times as long as near, at least"
    # A faster way counts at once, a slower one little by little.
    tunnels.seconds = 0.0
    near = await made(east)
    assert near == 1
    tunnels.seconds = 5 * NEAR_SECONDS
    assert await made(east, 1) < far


async def test_a_connection_that_fails_says_nothing_of_the_distance() -> None:
    pool = EngineConnectionPool("unix:///nowhere/e-1/s")
    assert not await pool.reachable()
    assert pool.distance == 0
