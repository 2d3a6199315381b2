"""The wait for ends of what samplers are asked: one read for all who wait."""

import time
from collections.abc import Sequence

from windlass.core.db import Database
from windlass.core.db.coalescing import Coalescer
from windlass.tuning.results import ResultBoard
from windlass.tuning.storage.ends import EndsQuery, ends

End = tuple[str, int]


class SamplerEnds:
    """Ends by sampler; a wait holds no connection to the database."""

    def __init__(self, database: Database, board: ResultBoard):
        self._database = database
        self._board = board
        self._read = Coalescer("tuning ends", self._read_many, abreast=1)

    async def wait(self, query: EndsQuery, seconds: float) -> list[End]:
        """The ends after a cursor, in their order; none if nothing ends in time."""
        until = time.monotonic() + seconds
        while True:
            # Before the look, so that nothing can come between.
            with self._board.news() as news:
                found = await self._read(query)
                left = until - time.monotonic()
                if found or left <= 0:
                    return found
                await news(left)

    async def _read_many(self, asked: Sequence[EndsQuery]) -> Sequence[list[End]]:
        return await ends(self._database, asked)
