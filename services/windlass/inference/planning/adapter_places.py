"""Adapters on the engines of one base, and which of them may leave for others; pure."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from windlass.inference.domain import FAIR_SECONDS, IN_USE_SECONDS

# A copy that was loaded stays so long, whoever needs its place: each change costs an engine a load.
STAY_SECONDS = 3.0
# One with requests stays so long before another that waits gets its place for a while.
TURN_SECONDS = 15.0
# One that is still not loaded may leave then.
LOADING_SECONDS = 120.0
# Gateways say what they hold within half a second of the first request.
ASKED_SECONDS = 3.0
# Where a base's engines and its adapters meet: an engine's id, and an adapter's version.
Fits = Callable[[str, str], bool]


@dataclass(frozen=True, slots=True)
class AdapterCopy:
    """An adapter that an engine was told to load; `since` is when it became as it is."""

    since: float
    is_loaded: bool = False
    has_failed: bool = False


@dataclass(frozen=True, slots=True)
class AdapterHost:
    """An engine with so many places for adapters, and the copies that it was told to load."""

    id: str
    places: int
    copies: Mapping[str, AdapterCopy]
    is_ready: bool = True
    # What it could not load, and does not try again yet.
    paused: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class AdapterDemand:
    """A wanted adapter: its project, and what all gateways say of it; times are Unix seconds."""

    version_id: str
    project_id: str = ""
    # Open and held.
    requests: int = 0
    # 0 for one that is kept without a request.
    used_at: float = 0.0
    # Since when requests wait for it; now, if none does.
    waits_since: float = 0.0


class Leaving(IntEnum):
    """Reasons of a copy to leave its place, the best one first."""

    # Other copies answer for all of the adapter's load.
    SPARE = 0
    # The engine could not load it.
    FAILED = 1
    # Nobody has asked for it lately.
    IDLE = 2
    # Others answer, though load asks for this one too.
    COPY = 3
    # It is in use, and no request is open now.
    RESTING = 4
    BUSY = 5


class Leaver(NamedTuple):
    """A copy that may leave its place; those that sort first leave first."""

    why: Leaving
    order: tuple[float, ...]
    version_id: str
    host_id: str


class AdapterPlaces:
    """Places of adapters on engines, as far as they are decided."""

    def __init__(
        self,
        now: float,
        hosts: Sequence[AdapterHost],
        demands: Iterable[AdapterDemand],
        fits: Fits,
        target: int,
    ):
        """`target` are the requests that a copy answers before there should be another."""
        self.now = now
        self._fits = fits
        self._target = target
        self.hosts = {one.id: one for one in sorted(hosts, key=lambda one: one.id)}
        ready = [one.id for one in self.hosts.values() if one.is_ready]
        # The engines that count; all of them while none is ready.
        self.counted = ready or list(self.hosts)
        ranked = sorted(demands, key=lambda one: (not one.used_at, -one.used_at, one.version_id))
        # The most needed first.
        self.demands = {one.version_id: one for one in ranked}
        self._ranks = {version: rank for rank, version in enumerate(self.demands)}
        self._held: dict[str, set[str]] = {host: set() for host in self.hosts}
        # Engines that count and have a free place.
        self.free = {one for one in self.counted if self.has_room(one)}
        self._load = Counter[str]()
        # Engines that count and have, or will have, an adapter that answers.
        self._copies: dict[str, set[str]] = defaultdict(set)
        self._shares = Counter[str]()
        self._evicted: set[tuple[str, str]] = set()
        for host in self.hosts.values():
            self._keep(host)

    def held(self, host_id: str) -> tuple[str, ...]:
        """The adapters of an engine, the most needed first."""
        return self.ranked(self._held[host_id])

    def ranked(self, versions: Iterable[str]) -> tuple[str, ...]:
        """Wanted versions, the most needed first."""
        return tuple(sorted(versions, key=self._ranks.__getitem__))

    def share(self, project_id: str) -> int:
        """The number of a project's adapters that have a place."""
        return self._shares[project_id]

    def copies(self, version: str) -> int:
        """The number of engines that an adapter has a place on."""
        return len(self._copies.get(version, ()))

    def needed(self, version: str) -> int:
        """The number of engines that the load of an adapter asks for."""
        requests = self.demands[version].requests
        return min(max(1, math.ceil(requests / self._target)), len(self.counted))

    def is_asked(self, version: str) -> bool:
        """Returns True if requests are open, or were held a moment ago."""
        demand = self.demands[version]
        return demand.requests > 0 or self.now - demand.used_at < ASKED_SECONDS

    def may_hold(self, host_id: str, version: str) -> bool:
        """Returns True if an engine can load an adapter, was not told to, and may try it now."""
        if version in self._held[host_id] or version in self.hosts[host_id].paused:
            return False
        # What left because it has failed would come back as it is.
        if self._has_failed(host_id, version):
            return False
        return self._fits(host_id, version)

    def has_room(self, host_id: str) -> bool:
        """Returns True if an engine has a free place."""
        return len(self._held[host_id]) < self.hosts[host_id].places

    def put(self, host_id: str, version: str) -> None:
        """Gives an adapter a free place."""
        self._held[host_id].add(version)
        if not self.has_room(host_id):
            self.free.discard(host_id)
        if host_id not in self.counted or self._has_failed(host_id, version):
            return
        if not self._copies[version]:
            self._shares[self.demands[version].project_id] += 1
        self._copies[version].add(host_id)
        self._load[host_id] += self._work(version)

    def evict(self, host_id: str, version: str) -> None:
        """Takes the place of a leaver back."""
        self._held[host_id].remove(version)
        self.free.add(host_id)
        self._evicted.add((host_id, version))
        if host_id not in self._copies[version]:
            return
        self._copies[version].remove(host_id)
        if not self._copies[version]:
            self._shares[self.demands[version].project_id] -= 1
        self._load[host_id] -= self._work(version)

    def work(self, host_id: str) -> tuple[int, int, str]:
        """Returns the sort key of engines: the least busy first."""
        return self._load[host_id], len(self._held[host_id]), host_id

    def leavers(self) -> list[Leaver]:
        """The copies that may leave now, those first that are needed least."""
        found = []
        for host_id in self.counted:
            for version, copy in self.hosts[host_id].copies.items():
                leaver = self._leaver(host_id, version, copy)
                if leaver is not None:
                    found.append(leaver)
        return sorted(found)

    def still_leaves(self, leaver: Leaver) -> bool:
        """Returns True if a copy is still there, and so are others if it leaves because of them."""
        host_id, version = leaver.host_id, leaver.version_id
        if version not in self._held[host_id]:
            return False
        if leaver.why not in (Leaving.SPARE, Leaving.COPY):
            return True
        copy = self.hosts[host_id].copies[version]
        why = self._beside_others(host_id, version, copy)
        return why is not None and why <= leaver.why

    def yields(self, leaver: Leaver, claim: AdapterDemand) -> bool:
        """Returns True if a copy leaves for an adapter that requests wait for.

        Of another project it leaves only while that has more places: what is used by few has its
        share beside what is used by many.
        """
        if leaver.why <= Leaving.COPY:
            return True
        if leaver.why is Leaving.BUSY and self.now - claim.waits_since < FAIR_SECONDS:
            return False
        owner = self.demands[leaver.version_id].project_id
        return owner == claim.project_id or self.share(owner) > self.share(claim.project_id)

    def _keep(self, host: AdapterHost) -> None:
        wanted = (one for one in host.copies if one in self.demands and self._fits(host.id, one))
        for version in self.ranked(wanted)[: host.places]:
            self.put(host.id, version)

    def _has_failed(self, host_id: str, version: str) -> bool:
        copy = self.hosts[host_id].copies.get(version)
        return copy is not None and copy.has_failed

    def _work(self, version: str) -> int:
        return self.demands[version].requests // self.needed(version)

    def _leaver(self, host_id: str, version: str, copy: AdapterCopy) -> Leaver | None:
        if version not in self._held[host_id] or (host_id, version) in self._evicted:
            return None
        demand, age = self.demands[version], self.now - copy.since
        if copy.has_failed:
            return None if age < STAY_SECONDS else Leaver(Leaving.FAILED, (), version, host_id)
        why = self._beside_others(host_id, version, copy)
        if why is not None:
            order = (float(copy.is_loaded), float(demand.requests), demand.used_at)
            return Leaver(why, order, version, host_id)
        if age < (STAY_SECONDS if copy.is_loaded else LOADING_SECONDS):
            return None
        if not self.is_asked(version):
            is_idle = self.now - demand.used_at > IN_USE_SECONDS
            why = Leaving.IDLE if is_idle else Leaving.RESTING
            return Leaver(why, (demand.used_at,), version, host_id)
        return None if age < TURN_SECONDS else Leaver(Leaving.BUSY, (copy.since,), version, host_id)

    def _beside_others(self, host_id: str, version: str, copy: AdapterCopy) -> Leaving | None:
        """Returns why a copy may leave because of others; None where these do not do without it."""
        others = self._copies[version] - {host_id}
        if not others:
            return None
        if copy.is_loaded and (
            self.now - copy.since < STAY_SECONDS
            or not any(self._is_loaded(other, version) for other in others)
        ):
            return None
        # Lower than what asks for another one, so that load that changes does not move copies.
        is_needed = 2 * self.demands[version].requests > self._target * len(others)
        return Leaving.COPY if is_needed else Leaving.SPARE

    def _is_loaded(self, host_id: str, version: str) -> bool:
        copy = self.hosts[host_id].copies.get(version)
        return copy is not None and copy.is_loaded
