"""The servicers of feeds."""

from collections.abc import Iterable
from typing import Any

from windlass.api.inference.v1 import feeds_pb2 as pb
from windlass.api.inference.v1 import feeds_pb2_grpc as rpc
from windlass.core.db.wake import Wake
from windlass.inference.feeds.feed import FedAnswer, Feed, fits
from windlass.inference.feeds.requests import TOPIC, FeedRequests
from windlass.inference.feeds.standing import FeedStandings
from windlass.inference.feeds.store import FeedStore


class FeedsServicer(rpc.FeedsServiceServicer):
    """FeedsService."""

    def __init__(self, requests: FeedRequests):
        self._requests = requests

    async def PutFeed(self, request: pb.PutFeedRequest, context: Any) -> pb.Feed:
        """Sets the feed of a model."""
        return await self._requests.put(request)

    async def GetFeed(self, request: pb.GetFeedRequest, context: Any) -> pb.Feed:
        """Returns the feed of a model."""
        return await self._requests.get(request)

    async def ListFeeds(self, request: pb.ListFeedsRequest, context: Any) -> pb.ListFeedsResponse:
        """Lists feeds of the project."""
        return await self._requests.list(request)

    async def DeleteFeed(
        self, request: pb.DeleteFeedRequest, context: Any
    ) -> pb.DeleteFeedResponse:
        """Ends a feed with all that it has."""
        return await self._requests.delete(request)


class FeedsInternalServicer(rpc.FeedsInternalServiceServicer):
    """FeedsInternalService."""

    def __init__(self, feeds: FeedStore, standings: FeedStandings, wake: Wake):
        self._feeds = feeds
        self._standings = standings
        self._wake = wake

    async def FindFeed(self, request: pb.FindFeedRequest, context: Any) -> pb.FindFeedResponse:
        """The feed that takes answers of a key from a model; an empty id where there is none."""
        feed = await self._feeds.find(request.project_id, request.model)
        if feed is None or request.key_id not in feed.key_ids:
            return pb.FindFeedResponse()
        is_open = await self._standings.is_open(feed)
        return pb.FindFeedResponse(feed_id=feed.id if is_open else "")

    async def KeepAnswers(
        self, request: pb.KeepAnswersRequest, context: Any
    ) -> pb.KeepAnswersResponse:
        """Keeps answers as far as the feed has room, and says how many."""
        feed = await self._feeds.find_id(request.project_id, request.feed_id)
        # It may have closed while the engine answered.
        if feed is None or not await self._standings.is_open(feed):
            return pb.KeepAnswersResponse()
        found = list(_answers(request, feed))
        kept = await self._feeds.keep(feed.id, request.project_id, request.key_id, found)
        if kept:
            self._wake.touch(TOPIC)
        return pb.KeepAnswersResponse(kept=kept)


def _answers(request: pb.KeepAnswersRequest, feed: Feed) -> Iterable[FedAnswer]:
    """Yields what is told of a request, without what no training of the feed has room for."""
    for number, one in enumerate(request.answers):
        if fits(one.sample, feed.batch):
            yield FedAnswer(
                id=f"{feed.id}/{request.request_id}/{number}",
                key_id=request.key_id,
                text=one.text,
                item=request.item,
                sample=one.sample.SerializeToString(),
            )
