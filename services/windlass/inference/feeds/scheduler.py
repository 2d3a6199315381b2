"""The loop that has kept answers graded, and trains engines by those that are good enough."""

from typing import NamedTuple

import grpc

from windlass.core import telemetry
from windlass.core.db.wake import Wake
from windlass.core.errors import (
    AlreadyExists,
    AppError,
    InvalidArgument,
    ResourceExhausted,
    from_rpc,
)
from windlass.core.ids import new_name
from windlass.inference.domain import Serving
from windlass.inference.feeds.feed import Feed, key_prefix, training_of
from windlass.inference.feeds.grading import AT_ONCE, FeedGrading
from windlass.inference.feeds.standing import FeedStandings
from windlass.inference.feeds.work import FeedWork
from windlass.inference.trainings.holds import EngineHoldStore
from windlass.inference.trainings.store import EngineTrainingStore
from windlass.inference.trainings.training import MESSAGE_LENGTH

log = telemetry.logger("inference")
# A feed that rests is looked at so often: what it rests on may have ended.
CHECK_SECONDS = 30.0
# What cannot be done now is tried again.
RETRY_SECONDS = 5.0


class _Rest(NamedTuple):
    """Time for which a feed may be left alone, and what it waits for."""

    seconds: float = CHECK_SECONDS
    message: str = ""
    is_stuck: bool = False


class FeedScheduler:
    """Works on one feed at a time, outside of any transaction, under its lease."""

    def __init__(
        self,
        work: FeedWork,
        standings: FeedStandings,
        grading: FeedGrading,
        trainings: EngineTrainingStore,
        holds: EngineHoldStore,
        wake: Wake,
    ):
        self._work = work
        self._standings = standings
        self._grading = grading
        self._trainings = trainings
        self._holds = holds
        self._wake = wake

    async def once(self) -> bool:
        """Works on a feed that is due; returns whether there was one."""
        token, feed = await self._work.claim()
        if feed is None:
            return False
        try:
            rest = await self._look_after(feed, token)
        except (AppError, grpc.aio.AioRpcError) as error:
            refusal = from_rpc(error) if isinstance(error, grpc.aio.AioRpcError) else error
            log.warning("feed_waits", feed=feed.id, error=refusal.message)
            rest = _Rest(RETRY_SECONDS, refusal.message, is_stuck=True)
        said = rest.message[:MESSAGE_LENGTH]
        await self._work.release(
            feed, token, seconds=rest.seconds, message=said, is_stuck=rest.is_stuck
        )
        return True

    async def _look_after(self, feed: Feed, token: str) -> _Rest:
        standing = await self._standings.of(feed)
        if standing.is_gone:
            await self._work.delete(feed)
            return _Rest()
        if standing.serving is None:
            await self._work.remove(feed)
            return _Rest(message=standing.closed)
        if standing.ended:
            await self._work.remove(feed, standing.ended)
        await self._work.forget_old(feed)
        waits = await self._grade(feed, token)
        rest = await self._train(feed, token, standing.serving)
        if not waits:
            return rest
        return _Rest(min(rest.seconds, RETRY_SECONDS), rest.message or waits, is_stuck=True)

    async def _grade(self, feed: Feed, token: str) -> str:
        """Grades the oldest answers; returns why some could not be."""
        found = await self._work.ungraded(feed, AT_ONCE)
        if not found:
            return ""
        grades = await self._grading.grade(feed, found)
        await self._work.apply(feed, token, grades.scores)
        return grades.message

    async def _train(self, feed: Feed, token: str, serving: Serving) -> _Rest:
        """Asks for the training of a batch; what was begun before is ended first."""
        key, taken = await self._work.taken(feed)
        if not taken:
            if await self._holds.holder(serving.version_id):
                return _Rest(RETRY_SECONDS, "A session of tuning trains the engine.")
            if await self._trainings.has_open(feed.project_id, key_prefix(feed.id)):
                return _Rest(RETRY_SECONDS)
            key, taken, wait = await self._work.take(feed, token)
            if not taken:
                words = "As many answers have trained in an hour as may." if wait else ""
                return _Rest(min(wait or CHECK_SECONDS, CHECK_SECONDS), words)
        is_trained = True
        try:
            training = training_of(feed, serving, key, taken, new_name("train-"))
            await self._trainings.create(training)
        except AlreadyExists:
            # They have trained, by the settings of before.
            log.info("feed_trained_before", feed=feed.id)
        except ResourceExhausted as error:
            return _Rest(RETRY_SECONDS, error.message)
        except InvalidArgument as error:
            log.warning("answers_not_trainable", feed=feed.id, error=error.message)
            is_trained = False
        await self._work.finish(feed, token, key, trained=is_trained)
        self._wake.touch("inference")
        return _Rest(0.0)
