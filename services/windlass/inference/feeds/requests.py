"""Requests that set and show feeds."""

from windlass.api.inference.v1 import feeds_pb2 as pb
from windlass.core.db.paging import cut, page_size
from windlass.core.db.wake import Wake
from windlass.core.errors import NotFound
from windlass.core.ids import new_name
from windlass.core.rpc.auth import current
from windlass.inference.domain import Serving
from windlass.inference.feeds.feed import Feed, checked_feed, outlined, shown
from windlass.inference.feeds.grading import FeedGrading
from windlass.inference.feeds.standing import FeedStandings
from windlass.inference.feeds.store import FeedStore
from windlass.inference.trainings.trainable import TrainableServings

TOPIC = "feeds"


class FeedRequests:
    """Requests of tenants for their feeds."""

    def __init__(
        self,
        feeds: FeedStore,
        servings: TrainableServings,
        standings: FeedStandings,
        grading: FeedGrading,
        wake: Wake,
    ):
        self._feeds = feeds
        self._servings = servings
        self._standings = standings
        self._grading = grading
        self._wake = wake

    async def put(self, request: pb.PutFeedRequest) -> pb.Feed:
        """Sets the feed of a model.

        Raises InvalidArgument, NotFound for the model and `key_not_found`, PermissionDenied,
        FailedPrecondition `training_not_enabled`, `zero_data_retention`, `sealed_project`,
        `grading_unavailable`.
        """
        serving = await self._servings.of_caller(request.model)
        checked_feed(request, serving.training)
        await self._standings.require_retention(serving.project_id)
        for key_id in request.key_ids:
            if not await self._standings.is_key(serving.project_id, key_id):
                raise NotFound(
                    f"The project has no live key {key_id[:64]!r}.",
                    reason="key_not_found",
                    param="key_ids",
                )
        await self._grading.admit(serving.organization_id, serving.project_id, request.grader)
        await self._feeds.put(_feed(request, serving))
        self._wake.touch(TOPIC)
        return await self._shown(serving.model)

    async def get(self, request: pb.GetFeedRequest) -> pb.Feed:
        """The feed of a model; raises NotFound `feed_not_found`."""
        return await self._shown(request.model)

    async def list(self, request: pb.ListFeedsRequest) -> pb.ListFeedsResponse:
        """The project's, newest first."""
        size = page_size(request.limit)
        found = await self._feeds.newest(current(), after=request.after, limit=size + 1)
        page, more = cut(found, size)
        return pb.ListFeedsResponse(feeds=[outlined(*one) for one in page], has_more=more)

    async def delete(self, request: pb.DeleteFeedRequest) -> pb.DeleteFeedResponse:
        """Ends a feed with all that it has; raises NotFound `feed_not_found`."""
        await self._feeds.delete(current(), request.model)
        return pb.DeleteFeedResponse()

    async def _shown(self, model: str) -> pb.Feed:
        return shown(*await self._feeds.get(current(), model))


def _feed(request: pb.PutFeedRequest, serving: Serving) -> Feed:
    caller = current()
    guard = request.guard.SerializeToString() if request.HasField("guard") else b""
    return Feed(
        id=new_name("feed-"),
        organization_id=serving.organization_id,
        project_id=serving.project_id,
        user_id=caller.user_id,
        key_id=caller.key_id,
        model=serving.model,
        key_ids=tuple(request.key_ids),
        grader=request.grader,
        least_score=request.least_score,
        hourly=request.hourly,
        batch=request.batch,
        optimizer=request.optimizer,
        learning_rate=request.learning_rate,
        guard=guard,
    )
