"""Every query on versions of runs' weights."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.db.leases import claim, held, released
from windlass.core.ids import new_id
from windlass.core.leaving.tables import leaves
from windlass.tuning.domain import Reader
from windlass.tuning.publishing.tables import versions
from windlass.tuning.storage.checkpoints import live_checkpoints, readable_by
from windlass.tuning.storage.tables import checkpoints, runs

LEASE_SECONDS = 30.0
RENEW_SECONDS = 5.0
AT_ONCE = 64
Row = sa.Row[Any]

_KEPT = versions.c.state != "gone"


@dataclass(frozen=True, kw_only=True)
class WrittenVersion:
    """Facts of a version's files, and what it is a delta against."""

    parent: int | None
    base_weights: str
    size: int
    sha256: str
    manifest_size: int
    manifest_sha256: str


def changed_runs() -> sa.Select[Any]:
    """The query for runs that went on since their newest weights were looked for, with these.

    Locks the runs, so that nothing is forgotten meanwhile.
    """
    newest = (
        sa.select(checkpoints.c.id, checkpoints.c.place)
        .where(
            checkpoints.c.run_id == runs.c.id,
            checkpoints.c.is_for_sampler,
            ~checkpoints.c.is_external,
            live_checkpoints(),
        )
        .order_by(
            checkpoints.c.place.desc(), checkpoints.c.created_at.desc(), checkpoints.c.id.desc()
        )
        .limit(1)
        .lateral()
    )
    # Where the newest one was deleted, nobody goes back to the one before it.
    is_known = sa.exists().where(
        versions.c.run_id == runs.c.id,
        sa.or_(
            sa.and_(versions.c.checkpoint_id == newest.c.id, _KEPT),
            versions.c.place > newest.c.place,
        ),
    )
    return (
        sa.select(
            runs.c.id.label("run_id"), runs.c.organization_id, runs.c.project_id,
            newest.c.id.label("checkpoint_id"), newest.c.place, is_known.label("is_known"),
        )
        .join(newest, sa.true(), isouter=True)
        .where(runs.c.is_full, runs.c.places > runs.c.published_places)
        .where(sa.not_(leaves(runs.c.project_id)))
        .order_by(runs.c.last_request_at.desc())
        .limit(AT_ONCE)
        .with_for_update(of=runs, skip_locked=True)
    )  # fmt: skip


def _begun(run: Row) -> dict[str, Any]:
    last = sa.select(sa.func.coalesce(sa.func.max(versions.c.version), 0)).where(
        versions.c.run_id == run.run_id
    )
    return {
        "id": new_id("wver_"),
        "organization_id": run.organization_id,
        "project_id": run.project_id,
        "run_id": run.run_id,
        "version": last.scalar_subquery() + 1,
        "checkpoint_id": run.checkpoint_id,
        "place": run.place,
        "state": "writing",
        "created_at": now_seconds(),
    }


class VersionStore:
    """Versions of every project; those that are offered have a checkpoint that is still there."""

    def __init__(self, database: Database):
        self._database = database

    async def begin_newest(self) -> bool:
        """Makes a row for the newest sampler checkpoint of each run that has none; a few at once.

        Returns whether there was any. Looks only at runs that went on since the last look.
        """
        async with self._database.begin() as connection:
            found = (await connection.execute(changed_runs())).all()
            due = [row for row in found if row.checkpoint_id is not None and not row.is_known]
            for row in due:
                # Another process may number the same one.
                await connection.execute(
                    insert(versions).values(_begun(row)).on_conflict_do_nothing()
                )
            if found:
                await connection.execute(
                    runs.update()
                    .where(runs.c.id.in_([row.run_id for row in found]))
                    .values(published_places=runs.c.places)
                )
        return bool(due)

    async def claim(self) -> tuple[str, Row | None]:
        """Leases a version that is to be written, the one that waited longest; and its token."""
        token, rows = await claim(
            self._database,
            versions,
            versions.c.state == "writing",
            limit=1,
            seconds=LEASE_SECONDS,
            order=versions.c.created_at,
        )
        return token, rows[0] if rows else None

    async def renew(self, version_id: str, token: str) -> bool:
        """Keeps a lease for longer; returns False where it is another's by now."""
        until = sa.func.now() + sa.func.make_interval(0, 0, 0, 0, 0, 0, LEASE_SECONDS)
        return await self._apply(version_id, token, lease_until=until)

    async def written(self, version_id: str, token: str, facts: WrittenVersion) -> bool:
        """Lets a version be followed; returns False where another process writes it."""
        values = {"state": "ready", "message": "", **vars(facts), **released()}
        return await self._apply(version_id, token, **values)

    async def refuse(self, version_id: str, token: str, message: str) -> None:
        """Notes why a version will never be, as of weights that versions cannot hold."""
        await self._apply(version_id, token, state="refused", message=message, **released())

    async def postpone(self, version_id: str, token: str, message: str) -> None:
        """Notes why a version was not written yet."""
        await self._apply(version_id, token, message=message, **released())

    async def drop(self, version_id: str, token: str) -> None:
        """Forgets a version whose checkpoint is gone."""
        await self._apply(version_id, token, state="gone", **released())

    async def last_ready(self, run_id: str) -> Row | None:
        """The newest version of a run that was written."""
        query = versions.select().where(versions.c.run_id == run_id, versions.c.state == "ready")
        return await self._first(query.order_by(versions.c.version.desc()).limit(1))

    async def newest(self, reader: Reader, run_id: str) -> Row | None:
        """The newest version that a project may follow, written or not; None for none."""
        query = (
            versions.select()
            .join(checkpoints, checkpoints.c.id == versions.c.checkpoint_id)
            .where(versions.c.run_id == run_id, _KEPT, readable_by(reader), live_checkpoints())
            .order_by((versions.c.state == "ready").desc(), versions.c.version.desc())
        )
        return await self._first(query.limit(1))

    async def chain(self, run_id: str, version: int) -> Sequence[Row]:
        """The versions that lead to one, a full one or the first delta first; none if one lacks."""
        query = versions.select().where(
            versions.c.run_id == run_id,
            versions.c.state == "ready",
            versions.c.version <= version,
        )
        async with self._database.autocommit() as connection:
            rows = {row.version: row for row in await connection.execute(query)}
        found: list[Row] = []
        at: int | None = version
        while at:
            if at not in rows:
                return ()
            found.append(rows[at])
            at = rows[at].parent
        return found[::-1]

    async def is_known(self, reader: Reader, run_id: str) -> bool:
        """Returns True for a run of the project, or one with a checkpoint that it may read."""
        own = sa.exists().where(
            runs.c.id == run_id, runs.c.project_id == reader.project_id, runs.c.is_full
        )
        lent = (
            sa.select(sa.literal(1))
            .select_from(checkpoints.join(runs, runs.c.id == checkpoints.c.run_id))
            .where(
                checkpoints.c.run_id == run_id,
                runs.c.is_full,
                readable_by(reader),
                live_checkpoints(),
            )
            .exists()
        )
        return await self._database.ask(sa.or_(own, lent))

    async def kept_runs(self) -> Sequence[Row]:
        """Runs with versions that are not gone, and whether any of those is offered still."""
        offered = sa.exists().where(
            checkpoints.c.id == versions.c.checkpoint_id, live_checkpoints()
        )
        query: sa.Select[Any] = (
            sa.select(
                versions.c.run_id, versions.c.project_id, sa.func.bool_or(offered).label("offered")
            )
            .where(_KEPT)
            .group_by(versions.c.run_id, versions.c.project_id)
        )
        async with self._database.autocommit() as connection:
            rows: Sequence[Row] = (await connection.execute(query)).all()
        return rows

    async def superseded(self, run_id: str) -> Sequence[Row]:
        """Versions of a run that nobody needs: older than the last whole one but one."""
        whole = (
            sa.select(versions.c.version)
            .where(
                versions.c.run_id == run_id,
                versions.c.state == "ready",
                sa.func.coalesce(versions.c.parent, 0) == 0,
            )
            .order_by(versions.c.version.desc())
            .offset(1)
            .limit(1)
        )
        query = versions.select().where(
            versions.c.run_id == run_id, _KEPT, versions.c.version < whole.scalar_subquery()
        )
        async with self._database.autocommit() as connection:
            return (await connection.execute(query)).all()

    async def forget(self, run_id: str, version: int = 0) -> None:
        """Notes that a version's content is gone; 0: of all, and the newest is due again."""
        which = versions.c.version == version if version else sa.true()
        async with self._database.begin() as connection:
            if not version:
                again = runs.update().where(runs.c.id == run_id).values(published_places=-1)
                await connection.execute(again)
            await connection.execute(
                versions.update()
                .where(versions.c.run_id == run_id, which, versions.c.state != "writing")
                .values(state="gone", message="", **released())
            )

    async def _apply(self, version_id: str, token: str, **values: Any) -> bool:
        async with self._database.begin() as connection:
            found = await connection.execute(
                versions.update()
                .where(versions.c.id == version_id, held(versions, token))
                .values(**values)
            )
        return bool(found.rowcount)

    async def _first(self, query: sa.Select[Any]) -> Row | None:
        async with self._database.autocommit() as connection:
            found: Row | None = (await connection.execute(query)).first()
        return found
