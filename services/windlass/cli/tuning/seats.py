"""`windlass tuning seats` and `turns`: who lives on shared devices, and who waits."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from windlass.cli.framework.calling import Call, command, group
from windlass.cli.framework.columns import Item, field, size
from windlass.cli.framework.failures import Problem

seats = group("Trainers and samplers that live on devices, or wait for room.")
turns = group("Turns of those that share a device.")
SeatId = Annotated[str, typer.Argument(metavar="SEAT_ID")]
PATH = "/api/v1/seats"
_PAGE = 100
_SEAT_COLUMNS = {
    "ID": field("id"),
    "MODEL": field("base_model"),
    "DEVICE": field("device"),
    "STATE": field("state"),
    "ON DEVICE": size("device_bytes"),
    "ON HOST": size("host_bytes"),
    "WHY": field("reason"),
}
_TURN_COLUMNS = {
    "DEVICE": field("device"),
    "ID": field("id"),
    "MODEL": field("base_model"),
    "STATE": field("state"),
    "TURNS": field("turns"),
    "WHY": field("reason"),
}
_ORDER = ("active", "restoring", "parking", "parked")


@command(seats, "list")
def list_seats(call: Call) -> None:
    """Lists seats; who waits for room says why."""
    call.out.items(_found(call), _SEAT_COLUMNS)


@command(seats, "show")
def show_seat(call: Call, seat_id: SeatId) -> None:
    """Shows one seat."""
    call.out.item(_one(_found(call), seat_id))


@command(turns, "list")
def list_turns(call: Call) -> None:
    """Lists who has each device, then who waits for it, and why."""
    call.out.items(sorted(_on_devices(call), key=_place), _TURN_COLUMNS)


@command(turns, "show")
def show_turn(call: Call, seat_id: SeatId) -> None:
    """Shows where one seat stands."""
    call.out.item(_one(list(_on_devices(call)), seat_id))


def _found(call: Call) -> list[Item]:
    page = call.client.get(PATH, limit=_PAGE)
    found: list[Item] = page["seats"]
    while page["has_more"] and page["seats"]:
        page = call.client.get(PATH, limit=_PAGE, after=found[-1]["id"])
        found += page["seats"]
    return found


def _on_devices(call: Call) -> Iterator[Item]:
    return (one for one in _found(call) if one["device"])


def _place(item: Item) -> tuple[Any, ...]:
    return item["host"], item["device"], _ORDER.index(item["state"]), item["asked_at"] or 0


def _one(found: list[Item], seat_id: str) -> Item:
    for one in found:
        if one["id"] == seat_id:
            return one
    raise Problem(f"No such seat: {seat_id}.")
