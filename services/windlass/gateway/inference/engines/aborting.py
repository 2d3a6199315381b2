"""End of a request that nobody waits for, in a way that its engine still says its usage."""

import asyncio

import msgspec

from windlass.gateway.inference.engines.connection import EngineBroken
from windlass.gateway.inference.engines.pool import EngineConnectionPool
from windlass.inference_api import routes
from windlass.inference_api.requests import MAX_CHOICES

# In which an engine that was told to abort a request answers it. The work itself ends after the
# step that the engine is in.
ABORT_SECONDS = 2.0
# Of that answer, which is not looked at.
_ANSWER_BYTES = 64 * 1024


async def abort(pool: EngineConnectionPool, path: str, request_id: str) -> None:
    """Has an engine end a request, and waits until cancelled, once the request is answered.

    Returns where the engine refuses to, or does not answer in time, and for what generates nothing.
    """
    if not (ids := _ids(path, request_id)):
        return
    body = msgspec.json.encode({"request_ids": ids})
    try:
        async with asyncio.timeout(ABORT_SECONDS):
            connection = await pool.send(routes.ABORT, body, request_id)
            try:
                await connection.read(_ANSWER_BYTES)
            finally:
                pool.done(connection)
            if connection.status < 300:
                await asyncio.sleep(ABORT_SECONDS)
    except (TimeoutError, OSError, EngineBroken):
        return


def _ids(path: str, request_id: str) -> list[str]:
    """The ids that an engine knows a request by: of a completion one for each prompt."""
    if path == routes.CHAT:
        return [f"chatcmpl-{request_id}"]
    prompts = range(MAX_CHOICES if path == routes.COMPLETIONS else 0)
    return [f"cmpl-{request_id}-{number}" for number in prompts]
