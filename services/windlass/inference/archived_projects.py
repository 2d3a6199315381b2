"""Ends the servings of projects that are archived."""

import grpc

from windlass.api.users.v1 import users_pb2
from windlass.api.users.v1.users_pb2_grpc import UsersInternalServiceAsyncStub
from windlass.core import telemetry
from windlass.core.db.wake import Wake
from windlass.inference.servings.store import ServingStore

log = telemetry.logger("inference")
# For an end that nobody has heard of.
POLL_SECONDS = 60.0


class ArchivedProjects:
    """A loop's round; it starts anew with every process, and whenever a project is archived."""

    def __init__(self, servings: ServingStore, users: UsersInternalServiceAsyncStub, wake: Wake):
        self._servings = servings
        self._users = users
        self._wake = wake

    async def once(self) -> bool:
        """Looks at the project of every serving; returns False, since there is no more to do."""
        for project_id in await self._servings.projects():
            request = users_pb2.LookupProjectRequest(project_id=project_id)
            try:
                project = await self._users.LookupProject(request)
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.NOT_FOUND:
                    raise
                continue
            if project.archived_at:
                ended = await self._servings.delete_all(project_id)
                log.info("servings_ended", project=project_id, models=ended)
                self._wake.touch("inference")
        return False
