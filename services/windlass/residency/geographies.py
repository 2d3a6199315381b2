"""Geographies of projects, as the users service has them."""

from collections import OrderedDict

import grpc

from windlass.api.users.v1 import users_pb2 as pb
from windlass.api.users.v1.users_pb2_grpc import UsersInternalServiceAsyncStub

REMEMBERED = 50_000
PAGE = 5000
_AWAY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


class ProjectGeographies:
    """Looks geographies up, and keeps what it heard: a project never gets another one."""

    def __init__(self, users: UsersInternalServiceAsyncStub, *, size: int = REMEMBERED):
        self._users = users
        self._size = size
        self._known: OrderedDict[str, str] = OrderedDict()
        self._listed: list[pb.Residency] | None = None

    async def of(self, project_id: str) -> str:
        """The geography of a project; empty for none, no project, and one that is not there.

        Raises AioRpcError where nobody can say it.
        """
        if not project_id:
            return ""
        known = self._known.get(project_id)
        if known is not None:
            return known
        try:
            found = await self._users.LookupProject(pb.LookupProjectRequest(project_id=project_id))
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                # One that comes to be under this id may have a geography.
                return ""
            raise
        self._known[project_id] = found.geography
        if len(self._known) > self._size:
            self._known.popitem(last=False)
        return found.geography

    async def all(self) -> list[pb.Residency]:
        """The projects that have one, with it; those known last while nobody can say it.

        A project that came since has nothing placed meanwhile: that asks for it alone.
        """
        try:
            self._listed = await self._list()
        except grpc.aio.AioRpcError as error:
            if self._listed is None or error.code() not in _AWAY:
                raise
        return self._listed

    async def _list(self) -> list[pb.Residency]:
        found: list[pb.Residency] = []
        while True:
            after = found[-1].project_id if found else ""
            request = pb.ListResidenciesRequest(after=after, limit=PAGE)
            try:
                answer = await self._users.ListResidencies(request)
            except grpc.aio.AioRpcError as error:
                # The release before knows of no geographies, and its projects have none.
                if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                    return []
                raise
            found += answer.residencies
            if not answer.has_more:
                return found
