"""/v1/organization/projects."""

from typing import Annotated

from pydantic import Field

from windlass.api.users.v1 import external_keys_pb2, external_keys_pb2_grpc
from windlass.api.users.v1 import users_pb2 as pb
from windlass.api.users.v1 import users_pb2_grpc as rpc
from windlass.bounds import GEOGRAPHY_PATTERN, TITLE_LENGTH
from windlass.core.app import App
from windlass.core.errors import InvalidArgument
from windlass.gateway.openai.rendering import Json, page
from windlass.gateway.parameters import After, Body, Limit
from windlass.gateway.resource_router import ResourceRouter
from windlass.residency.rule import as_residency, of_residency

Name = Annotated[str, Field(min_length=1, max_length=TITLE_LENGTH)]


Geography = Annotated[str, Field(pattern=GEOGRAPHY_PATTERN)]


class NewProject(Body):
    """A new project, where its data stays, and the external key that wraps its data key."""

    name: Name
    external_key_id: str | None = None
    geography: Geography | None = None
    # OpenAI's newer words for it, such as `EU_STORAGE_PROCESSING`; one of both is given.
    residency: str | None = None


class ProjectSettings(Body):
    """Settings of a project; those left out stay."""

    name: Name | None = None
    external_key_id: str | None = None
    geography: Geography | None = None
    # Ours: another data key by the same external key.
    rotate_data_key: bool = False


def render(project: pb.Project) -> Json:
    """A project in OpenAI's shape."""
    return {
        "id": project.id,
        "object": "organization.project",
        "name": project.title,
        "created_at": project.created_at,
        "archived_at": project.archived_at or None,
        "status": "archived" if project.archived_at else "active",
        "external_key_id": project.external_key_id or None,
        "residency": as_residency(project.geography),
    }


def _geography(body: NewProject) -> str:
    """The geography that is asked for, by either parameter; raises InvalidArgument for both."""
    if body.residency is None:
        return body.geography or ""
    if body.geography is not None:
        raise InvalidArgument("Give geography or residency, not both.", param="residency")
    return of_residency(body.residency)


def _require_same(project: pb.Project, geography: str) -> None:
    """Raises InvalidArgument for another geography than the project has."""
    if geography != project.geography:
        raise InvalidArgument(
            "A project's geography is given at its creation, and stays.",
            reason="geography_fixed",
            param="geography",
        )


def organization_projects_router(app: App) -> ResourceRouter:
    """The organization's projects."""
    router = ResourceRouter(prefix="/organization/projects", tags=["administration"])
    users = app.clients.stub(rpc.UsersServiceStub)
    keys = app.clients.stub(external_keys_pb2_grpc.ExternalKeysServiceStub)

    @router.post("")
    async def create_organization_project(body: NewProject) -> Json:
        """A new project of the caller's organization."""
        request = pb.CreateProjectRequest(
            title=body.name,
            external_key_id=body.external_key_id or "",
            geography=_geography(body),
        )
        return render(await users.CreateProject(request))

    @router.get("")
    async def list_organization_projects(
        after: After = "", limit: Limit = 0, include_archived: bool = False
    ) -> Json:
        """Projects that the caller may see, newest first."""
        answer = await users.ListProjects(
            pb.ListProjectsRequest(after=after, limit=limit, include_archived=include_archived)
        )
        return page([render(one) for one in answer.projects], answer.has_more)

    @router.get("/{project_id}")
    async def get_organization_project(project_id: str) -> Json:
        """Returns one project."""
        return render(await users.GetProject(pb.GetProjectRequest(project_id=project_id)))

    @router.post("/{project_id}")
    async def update_organization_project(project_id: str, body: ProjectSettings) -> Json:
        """Changes a project's name and its external key (empty: none), or rotates its data key."""
        if body.geography is not None:
            present = await users.GetProject(pb.GetProjectRequest(project_id=project_id))
            _require_same(present, body.geography)
        if body.name is not None:
            request = pb.UpdateProjectRequest(project_id=project_id, title=body.name)
            await users.UpdateProject(request)
        if body.external_key_id is not None or body.rotate_data_key:
            wanted = external_keys_pb2.SetProjectKeyRequest(
                project_id=project_id,
                external_key_id=body.external_key_id or "",
                rotate=body.rotate_data_key,
            )
            return render(await keys.SetProjectKey(wanted))
        return render(await users.GetProject(pb.GetProjectRequest(project_id=project_id)))

    @router.post("/{project_id}/archive")
    async def archive_organization_project(project_id: str) -> Json:
        """Archives a project: its keys stop working, its rows stay."""
        request = pb.ArchiveProjectRequest(project_id=project_id)
        return render(await users.ArchiveProject(request))

    return router
