"""Beginnings of a replay: the seed of a run, or a state that it saved."""

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from windlass.api.tuning.v1 import tuning_pb2 as pb
from windlass.core.errors import FailedPrecondition
from windlass.core.objects import ObjectNotFound
from windlass.tuning.blobs import Blobs
from windlass.tuning.domain import CheckpointPath
from windlass.tuning.storage.history import RunHistory

Row = sa.Row[Any]


@dataclass(frozen=True, slots=True)
class Beginning:
    """Origin of a replay: a state, or the operation that opened the run."""

    place: int
    state: Row | None = None
    opening: pb.OpenRun | None = None
    # The checkpoint that the opening loaded.
    loaded: str = ""

    @property
    def name(self) -> str:
        """Says where it is: a path, `state` of one without a name, or `seed`."""
        if self.state is not None:
            named = CheckpointPath(self.state.run_id, False, self.state.name)
            return str(named) if self.state.name else "state"
        return (self.opening.from_path if self.opening else "") or "seed"


@dataclass(frozen=True, slots=True)
class Route:
    """The part of a log that is computed again, and the last place before it that is gone."""

    beginning: Beginning
    last: int
    gone: int


class RoutePlanner:
    """Finds the beginnings from which the log reaches an operation."""

    def __init__(self, history: RunHistory, blobs: Blobs):
        self._history = history
        self._blobs = blobs

    async def longest(self, run: Row, last: int) -> Route:
        """The route with the most operations; raises FailedPrecondition `log_gone`."""
        gone = await self._history.last_gone(run, last)
        if not gone and (opening := await self._opening(run)) is not None:
            return Route(opening, last, gone)
        states = await self._history.states(run, gone, last)
        if not states or states[0].place >= last:
            raise log_gone(f"of the operations up to place {gone or last}")
        return Route(Beginning(states[0].place, state=states[0]), last, gone)

    async def shortest(self, run: Row, last: int) -> Route:
        """The route with the fewest operations, maybe none; raises as `longest`."""
        gone = await self._history.last_gone(run, last)
        if states := await self._history.states(run, gone, last):
            return Route(Beginning(states[-1].place, state=states[-1]), last, gone)
        if not gone and (opening := await self._opening(run)) is not None:
            return Route(opening, last, gone)
        raise log_gone(f"of the operations up to place {gone or last}")

    async def after(self, run: Row, place: int, last: int) -> Beginning | None:
        """The first state at or after a place that is no way through, before the last one."""
        found = [one for one in await self._history.states(run, place, last) if one.place < last]
        return Beginning(found[0].place, state=found[0]) if found else None

    async def _opening(self, run: Row) -> Beginning | None:
        row = await self._history.opening(run)
        if row is None:
            return None
        try:
            content = await self._blobs.get(row.body, row.body_key)
        except ObjectNotFound:
            return None
        body = pb.OperationBody.FromString(content)
        if row.weights_digest is None:
            # Nothing was loaded: the run began with its seed.
            body.open_run.ClearField("from_path")
        return Beginning(0, opening=body.open_run, loaded=row.loaded_checkpoint_id)


def log_gone(what: str) -> FailedPrecondition:
    """The error of an operation that the log does not reach."""
    return FailedPrecondition(
        f"The log does not reach there: bodies {what} are gone, and no saved state is between.",
        reason="log_gone",
        param="operation",
    )
