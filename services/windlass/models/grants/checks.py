"""Checks of grants: the owner of the model, and whether a project may receive it."""

import asyncio
from collections.abc import Sequence

import grpc

from windlass.api.models.v1 import models_pb2 as pb
from windlass.api.users.v1 import users_pb2
from windlass.api.users.v1.users_pb2_grpc import UsersInternalServiceAsyncStub
from windlass.bounds import MAX_GRANTED_PROJECTS
from windlass.core.db.paging import cut, page_size
from windlass.core.db.wake import Wake
from windlass.core.errors import InvalidArgument, NotFound, from_rpc
from windlass.core.rpc.auth import current
from windlass.models import messages
from windlass.models.domain import Version
from windlass.models.grants.store import GrantStore, no_model
from windlass.residency.geographies import ProjectGeographies
from windlass.residency.rule import require_receiver


class GrantChecks:
    """Creates, lists and deletes grants of models of the caller's organization."""

    def __init__(self, grants: GrantStore, users: UsersInternalServiceAsyncStub, wake: Wake):
        self._grants = grants
        self._users = users
        self._geographies = ProjectGeographies(users)
        self._wake = wake

    async def create(self, request: pb.CreateGrantsRequest) -> pb.CreateGrantsResponse:
        """Grants each project the use of a model."""
        version = await self._grantable(request.model)
        project_ids = list(dict.fromkeys(request.project_ids))
        await self._check(version, project_ids)
        made = await self._grants.create(version, project_ids)
        self._wake.touch("models")
        return pb.CreateGrantsResponse(grants=[messages.grant(one) for one in made])

    async def list(self, request: pb.ListGrantsRequest) -> pb.ListGrantsResponse:
        """Lists the projects that may use a model."""
        version = await self._grantable(request.model)
        size = page_size(request.limit, default=10)
        rows = await self._grants.list(
            version,
            after=request.after,
            limit=size + 1,
            ascending=request.ascending,
            project_id=request.project_id,
        )
        page, more = cut(rows, size)
        return pb.ListGrantsResponse(grants=[messages.grant(row) for row in page], has_more=more)

    async def delete(self, request: pb.DeleteGrantRequest) -> pb.DeleteGrantResponse:
        """Ends a grant."""
        version = await self._grantable(request.model)
        await self._grants.delete(version, request.grant_id)
        self._wake.touch("models")
        return pb.DeleteGrantResponse()

    async def _grantable(self, model: str) -> Version:
        """A model that the caller may grant; raises NotFound."""
        caller = current()
        if not caller.may_use(model):
            raise no_model(model)
        return await self._grants.grantable(caller.organization_id, model)

    async def _check(self, version: Version, project_ids: Sequence[str]) -> None:
        """Raises InvalidArgument, NotFound for what is no live project of the organization, and
        FailedPrecondition for one whose data may leave the model's geography.
        """
        if not 1 <= len(project_ids) <= MAX_GRANTED_PROJECTS:
            raise InvalidArgument(
                f"project_ids must name 1 to {MAX_GRANTED_PROJECTS} projects.", param="project_ids"
            )
        if version.project_id in project_ids:
            raise InvalidArgument(
                "The project owns this model and needs no permission to use it.",
                param="project_ids",
            )
        unknown: BaseException | None = None
        try:
            async with asyncio.TaskGroup() as group:
                for project_id in project_ids:
                    group.create_task(self._require_project(version.organization_id, project_id))
        except* NotFound as errors:
            unknown = errors.exceptions[0]
        if unknown is not None:
            raise unknown
        geography = await self._geographies.of(version.project_id)
        for project_id in project_ids:
            # What trains from it goes where the other project's jobs do.
            require_receiver(await self._geographies.of(project_id), geography)

    async def _require_project(self, organization_id: str, project_id: str) -> None:
        unknown = NotFound(
            f"The organization has no project {project_id[:64]!r}.", param="project_ids"
        )
        try:
            request = users_pb2.LookupProjectRequest(project_id=project_id)
            project = await self._users.LookupProject(request)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                raise unknown from error
            raise from_rpc(error) from error
        if project.organization_id != organization_id or project.archived_at:
            raise unknown
