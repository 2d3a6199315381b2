"""Bounds of what an order says of a resident: one that is out of them starts nothing."""

from windlass.api.keeper.v1 import keeper_pb2 as pb
from windlass.core.ids import is_identifier

MAX_RESIDENTS = 64
_MOST_WORDS, _LONGEST_WORD = 256, 32 * 1024
_MOST_PORT = 65_535


class UnsoundOrder(ValueError):
    """A resident that cannot be started as it is ordered."""


def require_sound_resident(asked: pb.Resident) -> None:
    """Raises UnsoundOrder for words that are none of a command, or bounds that are none."""
    if not 0 <= asked.slot < MAX_RESIDENTS:
        raise UnsoundOrder("its slot is out of bounds")
    if not 0 < asked.health_port <= _MOST_PORT:
        raise UnsoundOrder("its keeper's port is out of bounds")
    if asked.memory_bytes <= 0 or asked.disk_bytes <= 0:
        raise UnsoundOrder("its memory or its disk is out of bounds")
    if not asked.command or not asked.command[0]:
        raise UnsoundOrder("it has no command")
    words = [*asked.command, *asked.keeper, *asked.environment, *asked.environment.values()]
    if len(words) > _MOST_WORDS or any(len(one) > _LONGEST_WORD for one in words):
        raise UnsoundOrder("its command is too long")
    if any("\0" in one for one in words):
        raise UnsoundOrder("its command has a zero in it")
    if not all(one.isidentifier() and one.isascii() for one in asked.environment):
        raise UnsoundOrder("its environment has a name that is none")
    # `env` would take it for one of its own.
    if "=" in asked.command[0] or asked.command[0].startswith("-"):
        raise UnsoundOrder("its command names no program")


def known(order: pb.HostOrder) -> dict[str, pb.Resident]:
    """The residents of an order by id, those alone whose id may name a folder."""
    found = [one for one in order.residents if is_identifier(one.workload_id)]
    return {one.workload_id: one for one in found[:MAX_RESIDENTS]}
