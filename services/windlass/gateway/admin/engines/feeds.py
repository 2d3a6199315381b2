"""/v1/engines/…/feed: traffic that trains the engine which answers it."""

from typing import Annotated, Any, Literal

import orjson
from pydantic import Field

from windlass.api.inference.v1 import feeds_pb2 as pb
from windlass.api.inference.v1 import feeds_pb2_grpc as rpc
from windlass.core.app import App
from windlass.gateway.admin.engines.training_bodies import TrainingGuard
from windlass.gateway.openai.rendering import Json, page
from windlass.gateway.parameters import After, Body, Limit
from windlass.gateway.plain import plain
from windlass.gateway.resource_router import ResourceRouter


class PutFeed(Body):
    """Keys whose answers may train the engine, what judges these, and how they train."""

    key_ids: Annotated[
        list[str],
        Field(
            min_length=1, max_length=32, description="Keys of the project; `store: true` consents."
        ),
    ]
    grader: Annotated[
        dict[str, Any],
        Field(description="OpenAI's; reads `item.messages`, `item.prompt` and `item.metadata`."),
    ]
    least_score: Annotated[
        float, Field(ge=-1e6, le=1e6, strict=False, description="Of an answer that trains.")
    ]
    hourly: Annotated[
        int, Field(ge=1, le=10_000, description="Answers that may train in any hour.")
    ] = 64
    batch: Annotated[
        int, Field(ge=1, le=256, description="Answers of each training, which is one step.")
    ] = 8
    optimizer: Literal["apollo-mini", "apollo", "adamw", "sgd"] = "apollo-mini"
    learning_rate: Annotated[float, Field(ge=0, le=10, strict=False)] = 1e-5
    guard: TrainingGuard | None = None

    def to_message(self, model: str) -> pb.PutFeedRequest:
        """The request to the service."""
        values = self.model_dump(exclude={"grader", "guard"})
        return pb.PutFeedRequest(
            model=model,
            grader=orjson.dumps(self.grader),
            guard=self.guard.to_message() if self.guard else None,
            **values,
        )


def feeds_router(app: App) -> ResourceRouter:
    """Feeds of engines."""
    router = ResourceRouter(prefix="/engines", tags=["models"])
    feeds = app.clients.stub(rpc.FeedsServiceStub)

    @router.get("/feeds")
    async def list_feeds(after: After = "", limit: Limit = 0) -> Json:
        """Lists the project's feeds, newest first, without their graders and guards."""
        answer = await feeds.ListFeeds(pb.ListFeedsRequest(after=after, limit=limit))
        return page([_render(one) for one in answer.feeds], answer.has_more)

    # Names may have slashes.
    @router.get("/{model:path}/feed")
    async def retrieve_feed(model: str) -> Json:
        """Returns the feed of a model, and what became of the answers that it has kept."""
        return _render(await feeds.GetFeed(pb.GetFeedRequest(model=model)))

    @router.put("/{model:path}/feed")
    async def put_feed(model: str, body: PutFeed) -> Json:
        """Has answers of chosen keys train the engine of a model, where requests consent."""
        return _render(await feeds.PutFeed(body.to_message(model)))

    @router.delete("/{model:path}/feed")
    async def delete_feed(model: str) -> Json:
        """Ends the feed of a model with all that it has kept."""
        await feeds.DeleteFeed(pb.DeleteFeedRequest(model=model))
        return {"id": model, "object": "engine.feed", "deleted": True}

    return router


def _render(feed: pb.Feed) -> Json:
    return plain(feed, "engine.feed") | {"grader": orjson.loads(feed.grader or b"null")}
