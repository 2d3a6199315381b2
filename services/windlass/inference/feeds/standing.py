"""Standing of a feed: whether it may keep anything now, and of whom."""

from collections.abc import Collection
from dataclasses import dataclass

import grpc

from windlass.api.users.v1 import users_pb2
from windlass.api.users.v1.users_pb2_grpc import UsersInternalServiceAsyncStub
from windlass.core.errors import (
    FailedPrecondition,
    NotFound,
    PermissionDenied,
    Unauthenticated,
    from_rpc,
)
from windlass.inference.domain import Serving
from windlass.inference.feeds.feed import Feed
from windlass.inference.trainings.trainable import TrainableServings


@dataclass(frozen=True)
class FeedStanding:
    """State of a feed: gone for good, closed for a reason, or open with a serving."""

    serving: Serving | None = None
    closed: str = ""
    is_gone: bool = False
    # Keys that have ended, or are another project's now.
    ended: Collection[str] = ()


class FeedStandings:
    """Asks what a feed rests on: its project, its model's serving, and its keys."""

    def __init__(self, users: UsersInternalServiceAsyncStub, servings: TrainableServings):
        self._users = users
        self._servings = servings

    async def of(self, feed: Feed) -> FeedStanding:
        """Returns how a feed stands; raises AppError where that cannot be told now."""
        try:
            project = await self._project(feed.project_id)
            if project.archived_at:
                return FeedStanding(is_gone=True)
            require_keeping(project)
            serving = await self._serving(feed)
        except NotFound:
            return FeedStanding(is_gone=True)
        except FailedPrecondition as error:
            return FeedStanding(closed=error.message)
        keys = [(one, await self.is_key(feed.project_id, one)) for one in feed.key_ids]
        return FeedStanding(serving=serving, ended=[one for one, lives in keys if not lives])

    async def is_open(self, feed: Feed) -> bool:
        """True while a feed may keep answers of live keys."""
        try:
            await self.require_retention(feed.project_id)
            await self._serving(feed)
        except (NotFound, FailedPrecondition):
            return False
        return True

    async def require_retention(self, project_id: str) -> None:
        """Raises FailedPrecondition for a project that keeps nothing, NotFound."""
        require_keeping(await self._project(project_id))

    async def is_key(self, project_id: str, key_id: str) -> bool:
        """True for the live key of this project alone."""
        request = users_pb2.LookupApiKeyRequest(key_id=key_id, project_id=project_id)
        try:
            key = (await self._users.LookupApiKey(request)).key
        except grpc.aio.AioRpcError as error:
            refusal = from_rpc(error)
            if isinstance(refusal, Unauthenticated | PermissionDenied | NotFound):
                return False
            raise refusal from error
        is_key = key.kind == users_pb2.CREDENTIAL_KIND_KEY
        return bool(is_key and key.project_id == project_id)

    async def _project(self, project_id: str) -> users_pb2.Project:
        try:
            request = users_pb2.LookupProjectRequest(project_id=project_id)
            return await self._users.LookupProject(request)
        except grpc.aio.AioRpcError as error:
            raise from_rpc(error) from error

    async def _serving(self, feed: Feed) -> Serving:
        try:
            return await self._servings.of_project(feed.project_id, feed.model)
        except grpc.aio.AioRpcError as error:
            raise from_rpc(error) from error


def require_keeping(project: users_pb2.Project) -> None:
    """Raises FailedPrecondition for a project none of whose answers may be kept."""
    if not project.keeps_answers:
        raise FailedPrecondition(
            "The project has zero data retention: no answer may be kept, for a feed neither. Who "
            "administers the organization can set the project's data_retention to `none`.",
            reason="zero_data_retention",
        )
    if project.external_key_id:
        raise FailedPrecondition(
            "What the project keeps is sealed by a key of its own, and answers of a feed would not "
            "be: it cannot have one.",
            reason="sealed_project",
        )
