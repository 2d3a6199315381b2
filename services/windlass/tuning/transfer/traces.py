"""Timelines of sessions, in the JSON that Perfetto opens."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import orjson
import sqlalchemy as sa

from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.objects import ObjectStore
from windlass.tuning.transfer.trace_rows import operations_of

_MICROSECONDS = 1_000_000


class SessionTraces:
    """Writes the timeline of a session as an object, in place of an earlier one."""

    def __init__(self, database: Database, objects: ObjectStore):
        self._database = database
        self._objects = objects

    async def write(self, project_id: str, session_id: str) -> str:
        """Returns the key of the timeline of a session of the project."""
        rows = await operations_of(self._database, session_id)
        key = f"tuning/{project_id}/traces/{session_id}.json"
        await self._objects.put(key, _once(trace(rows, now_seconds())))
        return key


def trace(rows: Sequence[sa.Row[Any]], now: int) -> bytes:
    """A track for each run and each sampler, with its operations from arrival to end."""
    tracks = {name: number for number, name in enumerate(sorted({row.track for row in rows}), 1)}
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": number, "args": {"name": name}}
        for name, number in tracks.items()
    ]
    events += [
        {
            "ph": "X",
            "name": f"{row.seq_id}",
            "cat": row.state,
            "pid": 1,
            "tid": tracks[row.track],
            "ts": row.created_at * _MICROSECONDS,
            "dur": ((row.finished_at or now) - row.created_at) * _MICROSECONDS,
        }
        for row in rows
    ]
    return orjson.dumps({"traceEvents": events})


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content
