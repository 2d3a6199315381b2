"""The queries of the loop that grades kept answers, and has them train."""

from collections.abc import Collection, Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.db import Database
from windlass.core.db.leases import claim, held, released
from windlass.inference.feeds.feed import (
    FedAnswer,
    Feed,
    seconds_until_room,
    still_spent,
    training_key,
)
from windlass.inference.feeds.store import answers, feeds, locked, removed, to_feed
from windlass.inference.loads import CLOCK

# A call to the gateway answers within it, and what else there is to do.
LEASE_SECONDS = 180.0
# Answers that have waited so long are removed.
OLDEST_SECONDS = 7 * 86_400.0
_IS_UNGRADED = answers.c.score.is_(None)
_IS_TAKEN = answers.c.training_key != ""


class FeedWork:
    """Work on one feed at a time, which applies while its lease is held."""

    def __init__(self, database: Database):
        self._database = database

    async def claim(self) -> tuple[str, Feed | None]:
        """Leases a feed that is due; returns the token and the feed, or None."""
        token, rows = await claim(
            self._database, feeds, feeds.c.due_at <= CLOCK, limit=1, seconds=LEASE_SECONDS,
            order=feeds.c.due_at,
        )  # fmt: skip
        return token, to_feed(rows[0]) if rows else None

    async def delete(self, feed: Feed) -> None:
        """Ends a feed with all that it has."""
        async with self._database.begin() as connection:
            await connection.execute(feeds.delete().where(feeds.c.id == feed.id))
            await removed(connection, feed.id)

    async def remove(self, feed: Feed, keys: Collection[str] | None = None) -> None:
        """Removes what a feed has kept, or what it has of some keys, which it takes no more."""
        async with self._database.begin() as connection:
            now = await locked(connection, feed.id)
            if now is None:
                return
            of_keys = sa.true() if keys is None else answers.c.key_id.in_(keys)
            values: dict[str, Any] = {
                "removed": feeds.c.removed + await removed(connection, feed.id, of_keys)
            }
            if keys:
                values["key_ids"] = [one for one in now.key_ids if one not in keys]
            await _change(connection, feed, **values)

    async def forget_old(self, feed: Feed) -> None:
        """Removes answers that have waited for too long."""
        async with self._database.begin() as connection:
            if await locked(connection, feed.id) is None:
                return
            old = answers.c.created_at < CLOCK - OLDEST_SECONDS
            if gone := await removed(connection, feed.id, old, sa.not_(_IS_TAKEN)):
                await _change(connection, feed, removed=feeds.c.removed + gone)

    async def ungraded(self, feed: Feed, limit: int) -> list[FedAnswer]:
        """The oldest answers that have no grade."""
        return await self._answers(feed, _IS_UNGRADED, limit=limit)

    async def taken(self, feed: Feed) -> tuple[str, list[FedAnswer]]:
        """The answers that were taken for a training which may not have been asked for, its key."""
        query = sa.select(answers.c.training_key).where(answers.c.feed_id == feed.id, _IS_TAKEN)
        async with self._database.autocommit() as connection:
            key = (await connection.execute(query.limit(1))).scalar() or ""
        return key, await self._answers(feed, answers.c.training_key == key) if key else []

    async def apply(self, feed: Feed, token: str, grades: Mapping[str, float | None]) -> None:
        """Notes scores; answers with None, or less than the feed's least score, are removed."""
        async with self._database.begin() as connection:
            now = await locked(connection, feed.id, held(feeds, token))
            if now is None:
                return
            good = {
                one: score
                for one, score in grades.items()
                if score is not None and score >= now.least_score
            }
            for one, score in good.items():
                # Only the ids are of use from here on.
                graded = {"score": score, "text": "", "item": b"", "bytes": _SAMPLE_BYTES}
                await connection.execute(
                    answers.update().where(answers.c.id == one, _IS_UNGRADED).values(graded)
                )
            bad = answers.c.id.in_([one for one in grades if one not in good]), _IS_UNGRADED
            gone = await removed(connection, feed.id, *bad)
            await _change(connection, feed, refused=feeds.c.refused + gone)

    async def take(self, feed: Feed, token: str) -> tuple[str, list[FedAnswer], float]:
        """Takes a batch for a training, within the hourly bound; returns its key and its answers.

        Without any, the third value says in how many seconds the bound allows a batch; 0 where
        the answers are too few.
        """
        async with self._database.begin() as connection:
            now = await locked(connection, feed.id, held(feeds, token))
            if now is None:
                return "", [], 0.0
            graded = answers.c.feed_id == feed.id, sa.not_(_IS_UNGRADED), sa.not_(_IS_TAKEN)
            query = answers.select().where(*graded).order_by(answers.c.created_at, answers.c.id)
            rows = (await connection.execute(query.limit(now.batch))).all()
            if len(rows) < now.batch:
                return "", [], 0.0
            clock = (await connection.execute(sa.select(CLOCK))).scalar_one()
            if wait := seconds_until_room(now, clock):
                return "", [], wait
            ids = [row.id for row in rows]
            key = training_key(feed.id, ids)
            await connection.execute(
                answers.update().where(answers.c.id.in_(ids)).values(training_key=key)
            )
            spent = [*still_spent(now.spent, clock), (clock, len(rows))]
            await _change(connection, feed, spent=spent)
            return key, [_to_answer(row) for row in rows], 0.0

    async def finish(self, feed: Feed, token: str, key: str, *, trained: bool = True) -> None:
        """Removes the answers of a training, which has them or never will."""
        async with self._database.begin() as connection:
            if await locked(connection, feed.id, held(feeds, token)) is None:
                return
            number = await removed(connection, feed.id, answers.c.training_key == key)
            column = feeds.c.trained if trained else feeds.c.removed
            await _change(connection, feed, **{column.name: column + number})

    async def release(
        self, feed: Feed, token: str, *, seconds: float, message: str, is_stuck: bool
    ) -> None:
        """Gives the lease back; unless it is stuck, what came meanwhile is looked at at once."""
        async with self._database.begin() as connection:
            if await locked(connection, feed.id, held(feeds, token)) is None:
                return
            more = sa.exists().where(answers.c.feed_id == feed.id, _IS_UNGRADED)
            later = CLOCK + seconds
            due = later if is_stuck else sa.case((more, CLOCK), else_=later)
            values = {"due_at": due, "retry_at": later if is_stuck else 0.0, "message": message}
            await _change(connection, feed, **values, **released())

    async def _answers(
        self, feed: Feed, *where: sa.ColumnElement[bool], limit: int | None = None
    ) -> list[FedAnswer]:
        query = answers.select().where(answers.c.feed_id == feed.id, *where)
        query = query.order_by(answers.c.created_at, answers.c.id).limit(limit)
        async with self._database.autocommit() as connection:
            return [_to_answer(row) for row in await connection.execute(query)]


_SAMPLE_BYTES = sa.func.length(answers.c.sample)


def _to_answer(row: Any) -> FedAnswer:
    return FedAnswer(
        id=row.id,
        key_id=row.key_id,
        text=row.text,
        item=row.item,
        sample=row.sample,
        score=row.score,
    )


async def _change(connection: AsyncConnection, feed: Feed, **values: Any) -> None:
    await connection.execute(feeds.update().where(feeds.c.id == feed.id).values(values))
