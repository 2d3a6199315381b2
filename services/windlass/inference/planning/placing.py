"""Places of adapters on the engines of their base; pure.

What is there stays. What requests wait for comes first: where no place is free it gets that of a
spare copy, of what nobody has asked for lately, or in turns with others. Then what is hot gets
further copies, what was asked for before a place of its own, and what is left is filled with
copies of the same, so that each engine answers for as much as it can.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from heapq import heapify, heappop, heappush

from windlass.inference.planning.adapter_places import (
    AdapterCopy,
    AdapterDemand,
    AdapterHost,
    AdapterPlaces,
    Fits,
    Leaver,
    Leaving,
)

# More than it takes unless few engines may load what few others may not.
PASSES = 4


def placed(
    now: float,
    hosts: Sequence[AdapterHost],
    demands: Sequence[AdapterDemand],
    fits: Fits,
    *,
    target: int,
) -> Mapping[str, tuple[str, ...]]:
    """The adapters that each engine should load, by its id, the most needed first.

    `target` are the requests that a copy answers before there should be another. `fits` says
    whether an engine may and can load an adapter.
    """
    found: dict[str, tuple[str, ...]] = {}
    for _ in range(PASSES):
        places = AdapterPlaces(now, hosts, demands, fits, target)
        while _serve_waiting(places):
            pass
        _copy_hot(places)
        _place_idle(places)
        _fill(places)
        found = {host: places.held(host) for host in places.hosts}
        rests = all(set(found[one.id]) == set(one.copies) for one in hosts)
        if rests or not any(_lacks(places, version) for version in places.demands):
            break
        # Another copy may have come to an engine that it fits, and leave the place of this one.
        hosts = [_told(one, found[one.id], now) for one in hosts]
    return found


def _told(host: AdapterHost, versions: Iterable[str], now: float) -> AdapterHost:
    """An engine that was told to load these, and does not try again what failed and left."""
    unseen = AdapterCopy(now)
    copies = {one: host.copies.get(one, unseen) for one in versions}
    left = (one for one, copy in host.copies.items() if copy.has_failed and one not in copies)
    return replace(host, copies=copies, paused={*host.paused, *left})


def _serve_waiting(places: AdapterPlaces) -> bool:
    """Gives places to what requests wait for; returns False if none got one."""
    leavers, stuck, served = places.leavers(), set[str](), False
    for demand in _waiting(places):
        if demand.project_id in stuck and not places.free:
            continue
        yields = partial(places.yields, claim=demand)
        if _take_free(places, demand.version_id) or _displace(
            places, demand.version_id, leavers, yields
        ):
            served = True
        elif not any(map(yields, leavers)):
            # What has waited less is refused the same.
            stuck.add(demand.project_id)
    return served


def _waiting(places: AdapterPlaces) -> Iterator[AdapterDemand]:
    """Yields what requests wait for: projects with few places first, then the longest wait."""
    found = [
        one
        for version, one in places.demands.items()
        if not places.copies(version) and places.is_asked(version)
    ]
    found.sort(key=lambda one: (one.waits_since, one.version_id))
    turns, numbered = Counter[str](), []
    for number, one in enumerate(found):
        numbered.append((places.share(one.project_id) + turns[one.project_id], number))
        turns[one.project_id] += 1
    return (found[number] for _, number in sorted(numbered))


def _copy_hot(places: AdapterPlaces) -> None:
    """Gives copies to what one copy does not answer, the busiest first."""
    leavers = [one for one in places.leavers() if one.why <= Leaving.IDLE]
    there = [version for version in places.demands if places.copies(version)]
    heap = [_heat(places, version) for version in there if _lacks(places, version)]
    heapify(heap)
    while heap:
        _, version = heappop(heap)
        taken = _take_free(places, version) or _displace(places, version, leavers)
        if taken and _lacks(places, version):
            heappush(heap, _heat(places, version))


def _place_idle(places: AdapterPlaces) -> None:
    """Gives what was asked for before a free place, or that of a copy beside others."""
    leavers = [one for one in places.leavers() if one.why <= Leaving.FAILED]

    def leaves(one: Leaver) -> bool:
        return places.still_leaves(one) and places.copies(one.version_id) > 0

    for version in places.demands:
        if places.copies(version):
            continue
        if not places.free and not any(map(leaves, leavers)):
            return
        if not _take_free(places, version):
            _displace(places, version, leavers, leaves)


def _fill(places: AdapterPlaces) -> None:
    """Gives the places that are left to further copies of the most needed."""
    for host in places.hosts:
        for version in places.demands:
            if not places.has_room(host):
                break
            if places.may_hold(host, version):
                places.put(host, version)


def _lacks(places: AdapterPlaces, version: str) -> bool:
    return places.copies(version) < places.needed(version)


def _heat(places: AdapterPlaces, version: str) -> tuple[float, str]:
    return -places.demands[version].requests / places.copies(version), version


def _take_free(places: AdapterPlaces, version: str) -> bool:
    """Puts an adapter on the least busy engine with a free place; returns False for none."""
    free = [one for one in places.free if places.may_hold(one, version)]
    if free:
        places.put(min(free, key=places.work), version)
    return bool(free)


def _displace(
    places: AdapterPlaces,
    version: str,
    leavers: list[Leaver],
    yields: Callable[[Leaver], bool] = lambda _: True,
) -> bool:
    """Puts an adapter in the place of the first that leaves an engine where it fits."""
    for one in leavers:
        may_leave = places.still_leaves(one) and yields(one)
        if may_leave and places.may_hold(one.host_id, version):
            places.evict(one.host_id, one.version_id)
            places.put(one.host_id, version)
            leavers.remove(one)
            return True
    return False
