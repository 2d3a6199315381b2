"""Admission of residents to devices: bytes of the device, bytes of the host, and their number."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

_UNITS = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


@dataclass(frozen=True, slots=True)
class Demand:
    """Bytes that a resident takes."""

    # Of the device while it is active, and while it is parked.
    device_bytes: int
    # Of the host's memory for as long as it lives, what it parks there included.
    host_bytes: int
    residue_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Lease:
    """A device, or a group of devices that residents use together."""

    id: str
    name: str
    device_bytes: int
    # Of the machine; leases of one machine share them.
    host_bytes: int
    max_residents: int
    devices: int = 1


@dataclass(frozen=True, slots=True)
class Resident:
    """A workload that was admitted to a lease."""

    lease_id: str
    demand: Demand


def never_fits(leases: Collection[Lease], demand: Demand) -> str:
    """The sentence that says why no lease ever has room, even when it is empty; or nothing."""
    if not leases:
        return "No device is known to the tuning service."
    said = [_misfit(lease, [], demand, takes_turns=False) for lease in leases]
    return "" if "" in said else " ".join(said)


def admit(
    leases: Sequence[Lease],
    residents: Collection[Resident],
    demand: Demand,
    *,
    takes_turns: bool,
) -> tuple[Lease | None, str]:
    """The lease that a resident gets, the fullest that has room, or why it waits.

    Residents that take turns, and free the device for each other, need its bytes one at a time.
    """
    said: list[str] = []
    for lease in sorted(leases, key=lambda one: _taken(one, residents), reverse=True):
        misfit = _misfit(lease, residents, demand, takes_turns=takes_turns)
        if not misfit:
            return lease, ""
        said.append(misfit)
    return None, " ".join(sorted(said))


def device_bytes_needed(demands: Sequence[Demand], *, takes_turns: bool) -> int:
    """The most bytes of a device that these residents take of it at any time."""
    if not takes_turns:
        return sum(one.device_bytes for one in demands)
    residue = sum(one.residue_bytes for one in demands)
    return max(
        (residue - one.residue_bytes + one.device_bytes for one in demands), default=0
    )  # fmt: skip


def size(number: int) -> str:
    """Bytes as people read them."""
    for unit, name in _UNITS:
        if number >= unit:
            return f"{number / unit:.4g} {name}"
    return f"{number} bytes"


def _taken(lease: Lease, residents: Collection[Resident]) -> int:
    return sum(one.demand.device_bytes for one in residents if one.lease_id == lease.id)


def _misfit(
    lease: Lease, residents: Collection[Resident], demand: Demand, *, takes_turns: bool
) -> str:
    there = [one.demand for one in residents if one.lease_id == lease.id]
    held = f"{len(there)} resident{'' if len(there) == 1 else 's'}"
    if len(there) >= lease.max_residents:
        return f"{lease.name} has {held} of at most {lease.max_residents}."
    needed = device_bytes_needed([*there, demand], takes_turns=takes_turns)
    if needed > lease.device_bytes:
        return (
            f"{lease.name} has {size(lease.device_bytes)}, and {size(needed)} would be needed: "
            f"{size(demand.device_bytes)} for this one beside {held}."
        )
    host = sum(one.demand.host_bytes for one in residents)
    if host + demand.host_bytes > lease.host_bytes:
        return (
            f"The host of {lease.name} has {size(lease.host_bytes)} of memory for residents, of "
            f"which {size(host)} are taken: {size(demand.host_bytes)} for this one do not fit."
        )
    return ""
