"""The statements that write what operations led to: results, and usage that is owed, once."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, insert

from windlass.core.clock import now_ms, now_seconds
from windlass.core.db.leases import released
from windlass.tuning.storage.ends import numbered
from windlass.tuning.storage.log import QUEUED
from windlass.tuning.storage.tables import operations, owed_usage


@dataclass(frozen=True, slots=True)
class Spent:
    """Tokens and time of one operation, by its kind of usage."""

    kind: int
    input_tokens: int
    output_tokens: int
    device_seconds: float

    @property
    def device_time_ms(self) -> int:
        """Returns its time in milliseconds."""
        return round(self.device_seconds * 1000)


@dataclass(frozen=True, slots=True)
class WrittenCheckpoint:
    """A checkpoint that is whole: its bytes, its files' digests, whether it replaces another."""

    id: str
    size: int
    files: Mapping[str, str]
    replaces: bool = False


@dataclass
class Effects:
    """Changes that results bring, applied with them or not at all."""

    results: list[tuple[str, bytes | None, str]] = field(default_factory=list)
    # Places of those that were carried out, in the order in which they were.
    places: dict[str, int] = field(default_factory=dict)
    # Digests of results, and of files that were saved or loaded, by operation.
    digests: dict[str, bytes] = field(default_factory=dict)
    weights: dict[str, bytes] = field(default_factory=dict)
    # Checkpoints that were loaded, by operation.
    loaded: dict[str, str] = field(default_factory=dict)
    # What the usage service is told of them.
    spent: dict[str, Spent] = field(default_factory=dict)
    # Columns of the run.
    run: dict[str, Any] = field(default_factory=dict)
    ready: list[WrittenCheckpoint] = field(default_factory=list)
    # The place that these checkpoints have.
    place: int = 0
    samplers: list[dict[str, Any]] = field(default_factory=list)


_COLUMNS: dict[str, sa.types.TypeEngine[Any]] = {
    "id": sa.Text(),
    "content": sa.LargeBinary(),
    "key": sa.Text(),
    "place": sa.BigInteger(),
    "digest": sa.LargeBinary(),
    "weights": sa.LargeBinary(),
    "loaded": sa.Text(),
    # 0: nothing is owed.
    "kind": sa.SmallInteger(),
    "input_tokens": sa.BigInteger(),
    "output_tokens": sa.BigInteger(),
    "device_time_ms": sa.BigInteger(),
}
_GIVEN = (
    sa.func.unnest(
        *(sa.bindparam(f"given_{name}", type_=ARRAY(kind)) for name, kind in _COLUMNS.items())
    )
    .table_valued(*(sa.column(name, kind) for name, kind in _COLUMNS.items()), name="given")
    .render_derived()
)
_RESULTS = (
    operations.update()
    .where(operations.c.id == _GIVEN.c.id, QUEUED)
    .values(
        state="done",
        result=_GIVEN.c.content,
        result_key=_GIVEN.c.key,
        place=_GIVEN.c.place,
        result_digest=_GIVEN.c.digest,
        weights_digest=_GIVEN.c.weights,
        loaded_checkpoint_id=_GIVEN.c.loaded,
        finished_at=sa.bindparam("now", type_=sa.BigInteger),
        **released(),
    )
)
_NOTHING: Mapping[str, Any] = {}
_WHOSE = ("organization_id", "project_id", "user_id", "key_id")
_AMOUNTS = ("kind", "input_tokens", "output_tokens", "device_time_ms")


def writing(
    where: sa.ColumnElement[bool], values: Mapping[str, Any] = _NOTHING
) -> tuple[sa.CTE, sa.CTE]:
    """Parts of a statement: results of operations that still wait, and the usage that they owe.

    `values` are of further columns of the operations.
    """
    done = (
        _RESULTS.where(where)
        .values(values)
        .returning(
            operations.c.id,
            *(operations.c[name] for name in _WHOSE),
            *(_GIVEN.c[name] for name in _AMOUNTS),
        )
        .cte("done")
    )
    owed = (
        insert(owed_usage)
        .from_select(
            ["id", *_WHOSE, *_AMOUNTS, "model", "at_ms"],
            sa.select(
                *(done.c[name] for name in ("id", *_WHOSE, *_AMOUNTS)),
                sa.bindparam("model", type_=sa.Text),
                sa.bindparam("now_ms", type_=sa.BigInteger),
            ).where(done.c.kind > 0),
        )
        .on_conflict_do_nothing(index_elements=["id"])
        .cte("owed")
    )
    return done, owed


def _counting(
    where: sa.ColumnElement[bool], values: Mapping[str, Any] = _NOTHING
) -> sa.Select[Any]:
    done, owed = writing(where, values)
    return sa.select(sa.func.count()).select_from(done).add_cte(owed)


# Made once: to make a statement costs as much as to run it.
WRITE_RESULTS = _counting(sa.true())
_MINE = numbered(
    operations.c.lease_owner == sa.bindparam("token", type_=sa.Text),
    operations.c.id == sa.any_(sa.bindparam("given_id", type_=ARRAY(sa.Text))),
)
FINISH = _counting(operations.c.id == _MINE.ids.c.id, {"ended": _MINE.number})


def given(base_model: str, effects: Effects) -> dict[str, Any]:
    """The parameters of these statements."""
    nothing = Spent(0, 0, 0, 0.0)
    ids = [one for one, _, _ in effects.results]
    spent = [effects.spent.get(one, nothing) for one in ids]
    columns: dict[str, list[Any]] = {
        "id": ids,
        "content": [content for _, content, _ in effects.results],
        "key": [key for _, _, key in effects.results],
        "place": [effects.places.get(one, 0) for one in ids],
        "digest": [effects.digests.get(one) for one in ids],
        "weights": [effects.weights.get(one) for one in ids],
        "loaded": [effects.loaded.get(one, "") for one in ids],
        **{name: [getattr(one, name) for one in spent] for name in _AMOUNTS},
    }
    return {
        **{f"given_{name}": values for name, values in columns.items()},
        "model": base_model,
        "now": now_seconds(),
        "now_ms": now_ms(),
    }
