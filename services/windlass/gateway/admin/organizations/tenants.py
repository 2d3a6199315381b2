"""/v1/me, /v1/permissions, /v1/organizations and /v1/projects."""

from typing import Annotated

from fastapi import Query
from pydantic import Field

from windlass.api.rbac.v1 import rbac_pb2, rbac_pb2_grpc
from windlass.api.users.v1 import roles_pb2, roles_pb2_grpc
from windlass.api.users.v1 import users_pb2 as pb
from windlass.api.users.v1 import users_pb2_grpc as rpc
from windlass.bounds import GEOGRAPHY_PATTERN, TITLE_LENGTH
from windlass.core.app import App
from windlass.core.ids import IDENTIFIER_LENGTH
from windlass.gateway.openai.rendering import Json, page
from windlass.gateway.parameters import After, Body, Limit
from windlass.gateway.plain import plain
from windlass.gateway.resource_router import ResourceRouter

ProjectId = Annotated[str, Query(max_length=IDENTIFIER_LENGTH)]


class Titled(Body):
    """A new organization or project."""

    title: Annotated[str, Field(min_length=1, max_length=TITLE_LENGTH)]


class TitledProject(Titled):
    """A new project, and where its data stays, such as `EU`; null: anywhere."""

    geography: Annotated[str, Field(pattern=GEOGRAPHY_PATTERN)] | None = None


def render_project(project: pb.Project) -> Json:
    """A project."""
    status = "archived" if project.archived_at else "active"
    return {**plain(project, "project"), "status": status}


def tenants_router(app: App) -> ResourceRouter:
    """The routes of the caller's identity, organizations and projects."""
    router = ResourceRouter(tags=["organizations and projects"])
    users = app.clients.stub(rpc.UsersServiceStub)

    @router.get("/me")
    async def who_am_i() -> Json:
        """The caller: principal, organization, project and key."""
        return plain(await users.WhoAmI(pb.WhoAmIRequest()), "me")

    @router.post("/organizations")
    async def create_organization(body: Titled) -> Json:
        """A new organization with a default project (platform administrators)."""
        request = pb.CreateOrganizationRequest(title=body.title)
        return plain(await users.CreateOrganization(request), "organization")

    @router.get("/organizations")
    async def list_organizations(after: After = "", limit: Limit = 0) -> Json:
        """The caller's organization, or all for a platform administrator."""
        answer = await users.ListOrganizations(
            pb.ListOrganizationsRequest(after=after, limit=limit)
        )
        return page([plain(one, "organization") for one in answer.organizations], answer.has_more)

    @router.get("/organizations/{organization_id}")
    async def get_organization(organization_id: str) -> Json:
        """Returns one organization."""
        request = pb.GetOrganizationRequest(organization_id=organization_id)
        return plain(await users.GetOrganization(request), "organization")

    @router.post("/projects")
    async def create_project(body: TitledProject) -> Json:
        """A new project of the caller's organization, in a geography that is for good."""
        request = pb.CreateProjectRequest(title=body.title, geography=body.geography or "")
        return render_project(await users.CreateProject(request))

    @router.get("/projects")
    async def list_projects(
        after: After = "", limit: Limit = 0, include_archived: bool = False
    ) -> Json:
        """Projects that the caller may see."""
        answer = await users.ListProjects(
            pb.ListProjectsRequest(after=after, limit=limit, include_archived=include_archived)
        )
        return page([render_project(one) for one in answer.projects], answer.has_more)

    @router.get("/projects/{project_id}")
    async def get_project(project_id: str) -> Json:
        """Returns one project."""
        return render_project(await users.GetProject(pb.GetProjectRequest(project_id=project_id)))

    @router.post("/projects/{project_id}/archive")
    async def archive_project(project_id: str) -> Json:
        """Archives a project: its keys stop working, its rows stay."""
        request = pb.ArchiveProjectRequest(project_id=project_id)
        return render_project(await users.ArchiveProject(request))

    return router


def permissions_router(app: App) -> ResourceRouter:
    """Questions about permissions."""
    router = ResourceRouter(prefix="/permissions", tags=["members"])
    rbac = app.clients.stub(rbac_pb2_grpc.RbacServiceStub)
    roles = app.clients.stub(roles_pb2_grpc.RolesServiceStub)

    @router.get("/{permission}")
    async def check_permission(permission: str, project_id: ProjectId = "") -> Json:
        """Says whether the caller has a permission in its project or another, and why not."""
        request = rbac_pb2.CheckRequest(permission=permission, resource=project_id)
        answer = await rbac.Check(request)
        return {
            "object": "permission",
            "id": permission,
            "allowed": answer.allowed,
            "reason": answer.reason or None,
        }

    @router.get("/{permission}/holders")
    async def list_holders(
        permission: str, project_id: ProjectId = "", after: After = "", limit: Limit = 0
    ) -> Json:
        """Members who have a permission in a project, or in all of the organization."""
        answer = await roles.ListHolders(
            roles_pb2.ListHoldersRequest(
                permission=permission, project_id=project_id, after=after, limit=limit
            )
        )
        shown = [{"id": one.user_id, "by": list(one.by)} for one in answer.holders]
        return page(shown, answer.has_more)

    return router
