"""Work of others at engines: what these say that they have to do, less what is this gateway's.

Figures are old, and every gateway has the same ones: if each took them for what is, all would go
to the engine that was the least busy, and then all to another. So each makes up for its own part of
a difference alone, which is its part of all requests: together that is the whole, however many
gateways there are, and an error becomes less with each figure. What an engine says counts no more
than that, so one that lies gets less than twice its share, or none.
"""

import math
import random
from collections import defaultdict
from collections.abc import Callable, Mapping

from windlass.api.inference.v1.inference_pb2 import ReplicaLoad
from windlass.gateway.inference.engines.pool import EngineConnectionPool

WEIGH_SECONDS = 1.0
# As agents have it: what they say is a mean over about so long.
MEAN_SECONDS = 30.0
# Requests of one engine; more than that are not believed.
MOST = 1000
# Percent of an engine's cache in the use of requests, from which on none is left of earlier ones.
FULL_CACHE = 95
_WEIGHT = 1 - math.exp(-WEIGH_SECONDS / MEAN_SECONDS)


class OtherWork:
    """Keeps for each engine the number of others' requests that this gateway makes up for."""

    def __init__(self, draw: Callable[[], float] = random.random):
        """`draw` returns a number from 0 to 1, which rounds the parts of requests."""
        self._draw = draw
        self._own: dict[str, _OwnRequests] = {}

    def weigh(
        self, loads: Mapping[str, ReplicaLoad], pools: Mapping[str, EngineConnectionPool]
    ) -> None:
        """Sets `others` and `full` of every engine; to be called every WEIGH_SECONDS."""
        if not loads and not self._own:
            return
        before, self._own = self._own, {}
        versions = defaultdict[str, list[_Told]](list)
        for address, pool in pools.items():
            pool.others, pool.full = 0, False
            if (load := loads.get(address)) is None:
                continue
            pool.full = load.cache_percent >= FULL_CACHE
            if load.HasField("requests"):
                own = before.get(address) or _OwnRequests(pool.active)
                own.add(pool.active)
                self._own[address] = own
                versions[load.engine_version_id].append(_Told(pool, own, load.requests))
        # The same for all: between engines that are equally busy, rounding makes no difference.
        drawn = self._draw()
        for told in versions.values():
            own_requests = sum(one.own.mean for one in told)
            part = own_requests / max(1.0, own_requests + sum(one.others for one in told))
            for one in told:
                one.pool.others = int(part * one.others + drawn)


class _OwnRequests:
    """Mean of this gateway's open requests at an engine, as its agent's figure has it."""

    __slots__ = ("_slow", "mean")

    def __init__(self, active: int):
        self.mean = self._slow = float(active)

    def add(self, active: int) -> None:
        self.mean += _WEIGHT * (active - self.mean)
        self._slow += _WEIGHT * (self.mean - self._slow)

    @property
    def most(self) -> float:
        """The most that a figure has of them, since it comes late."""
        return max(self.mean, self._slow)


class _Told:
    __slots__ = ("others", "own", "pool")

    def __init__(self, pool: EngineConnectionPool, own: _OwnRequests, requests: int):
        self.pool = pool
        self.own = own
        self.others = max(0.0, min(requests, MOST) - own.most)
