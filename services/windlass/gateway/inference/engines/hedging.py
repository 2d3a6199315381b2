"""Race of a slow request with its copy at another engine."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from windlass.gateway.inference.engines.connection import EngineBroken, EngineConnection
from windlass.gateway.inference.engines.errors import failed

Opening = Coroutine[Any, Any, EngineConnection]


async def race(
    first: Opening, second: Callable[[], Opening | None], *, seconds: float
) -> tuple[EngineConnection, bool]:
    """Returns the answer that begins first, and whether it is the second's; ends the other one.

    `second` is asked for once `first` has not begun after `seconds`, and may be None. One that
    fails loses to one that does not; where both fail the first one's error is raised.
    """
    tasks = [asyncio.create_task(_begun(first))]
    winner: asyncio.Task[EngineConnection] | None = None
    try:
        await asyncio.wait(tasks, timeout=seconds)
        if not tasks[0].done() and (copy := second()) is not None:
            tasks.append(asyncio.create_task(_begun(copy)))
        left = set(tasks)
        while left and winner is None:
            _, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
            winner = next((one for one in tasks if one.done() and _is_good(one)), None)
        winner = winner or tasks[0]
        return winner.result(), winner is not tasks[0]
    finally:
        # Not awaited: who leaves meanwhile would leave the winner's connection open.
        for one in tasks:
            if one is not winner:
                one.cancel()
                one.add_done_callback(_close)


async def _begun(opening: Opening) -> EngineConnection:
    """Returns an answer of which something can be read; raises HttpError if it breaks off."""
    connection = await opening
    try:
        await connection.begun()
    except BaseException as error:
        connection.close()
        if isinstance(error, EngineBroken):
            raise failed(error) from error
        raise
    return connection


def _is_good(task: asyncio.Task[EngineConnection]) -> bool:
    return not task.cancelled() and task.exception() is None and task.result().status < 500


def _close(task: asyncio.Task[EngineConnection]) -> None:
    """Closes the connection of an answer that began and lost."""
    if not task.cancelled() and task.exception() is None:
        task.result().close()
