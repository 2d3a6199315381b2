"""Settings of OpenAI's that have few values here: hosted tools, and how long answers are kept.

No tool runs here on behalf of a model. No prompt or answer is kept either, but by a feed of a
project whose retention is `none`, where a request consents (ADR 98). So both say what is true, and
a change to something else is refused by its name.
"""

from typing import Literal

from windlass.api.rbac.v1 import rbac_pb2, rbac_pb2_grpc
from windlass.api.users.v1 import users_pb2, users_pb2_grpc
from windlass.core.app import App
from windlass.core.errors import InvalidArgument, PermissionDenied
from windlass.gateway.openai.rendering import Json
from windlass.gateway.parameters import Body
from windlass.gateway.resource_router import ResourceRouter
from windlass.policy import PROJECTS

TOOLS = ("code_interpreter", "file_search", "image_generation", "mcp", "web_search")
ZERO = "zero_data_retention"
_DEFAULT = "organization_default"
NONE = "none"
_Retention = Literal[
    "zero_data_retention",
    "modified_abuse_monitoring",
    "enhanced_zero_data_retention",
    "enhanced_modified_abuse_monitoring",
]


class HostedTool(Body):
    """Permission of a tool."""

    enabled: bool


class HostedTools(Body):
    """Tools of a project; those left out stay."""

    code_interpreter: HostedTool | None = None
    file_search: HostedTool | None = None
    image_generation: HostedTool | None = None
    mcp: HostedTool | None = None
    web_search: HostedTool | None = None


class OrganizationRetention(Body):
    """Duration for which an organization's prompts and answers are kept."""

    retention_type: _Retention


class ProjectRetention(Body):
    """Duration for which a project's prompts and answers are kept."""

    retention_type: _Retention | Literal["organization_default", "none"]


class _Settings:
    """Projects that callers may see, and callers who may change their settings."""

    def __init__(self, app: App):
        self._users = app.clients.stub(users_pb2_grpc.UsersServiceStub)
        self._rbac = app.clients.stub(rbac_pb2_grpc.RbacServiceStub)

    async def see(self, project_id: str) -> users_pb2.Project:
        """A project; raises NotFound unless the caller may see it."""
        return await self._users.GetProject(users_pb2.GetProjectRequest(project_id=project_id))

    async def keep(self, project_id: str, *, kept: bool) -> users_pb2.Project:
        """Changes whether a project may keep what requests consent to."""
        request = users_pb2.UpdateProjectRequest(project_id=project_id, keeps_answers=kept)
        return await self._users.UpdateProject(request)

    async def change(self) -> None:
        """Raises PermissionDenied unless the caller may change settings of projects."""
        answer = await self._rbac.Check(rbac_pb2.CheckRequest(permission=PROJECTS))
        if not answer.allowed:
            raise PermissionDenied(f"This needs the permission {PROJECTS}.")


def fixed_settings_router(app: App) -> ResourceRouter:
    """Hosted tools and data retention, which say what is true."""
    router = ResourceRouter(prefix="/organization", tags=["administration"])
    settings = _Settings(app)
    _add_tools(router, settings)
    _add_retention(router, settings)
    return router


def _add_tools(router: ResourceRouter, settings: _Settings) -> None:
    path = "/projects/{project_id}/hosted_tool_permissions"

    @router.get(path)
    async def get_hosted_tool_permissions(project_id: str) -> Json:
        """Lists tools that models of a project may use: there are none."""
        await settings.see(project_id)
        return {name: {"enabled": False} for name in TOOLS}

    @router.post(path)
    async def update_hosted_tool_permissions(project_id: str, body: HostedTools) -> Json:
        """Denies tools, which none has; to allow one is refused."""
        await settings.see(project_id)
        await settings.change()
        for name in TOOLS:
            wanted: HostedTool | None = getattr(body, name)
            if wanted is not None and wanted.enabled:
                raise InvalidArgument(
                    f"{name} is not a tool of this installation; it cannot be enabled.",
                    reason="unsupported_parameter",
                    param=name,
                )
        return {name: {"enabled": False} for name in TOOLS}


def _add_retention(router: ResourceRouter, settings: _Settings) -> None:
    @router.get("/data_retention")
    async def get_organization_data_retention() -> Json:
        """Says how long prompts and answers are kept: not at all."""
        return {"object": "organization.data_retention", "type": ZERO}

    @router.post("/data_retention")
    async def update_organization_data_retention(body: OrganizationRetention) -> Json:
        """Takes what is true; to keep something is refused."""
        await settings.change()
        _require_one_of(body.retention_type, ZERO)
        return {"object": "organization.data_retention", "type": ZERO}

    @router.get("/projects/{project_id}/data_retention")
    async def get_project_data_retention(project_id: str) -> Json:
        """Says whether answers are kept: as those of the organization, or with consent alone."""
        return _retention_of(await settings.see(project_id))

    @router.post("/projects/{project_id}/data_retention")
    async def update_project_data_retention(project_id: str, body: ProjectRetention) -> Json:
        """Keeps nothing, or with `none` what requests consent to have kept for a feed."""
        await settings.see(project_id)
        await settings.change()
        _require_one_of(body.retention_type, ZERO, _DEFAULT, NONE)
        return _retention_of(await settings.keep(project_id, kept=body.retention_type == NONE))


def _retention_of(project: users_pb2.Project) -> Json:
    kind = NONE if project.keeps_answers else _DEFAULT
    return {"object": "project.data_retention", "type": kind}


def _require_one_of(wanted: str, *known: str) -> None:
    if wanted not in known:
        raise InvalidArgument(
            f"This installation keeps no prompts and answers that nobody consents to have kept: "
            f"retention_type is {' or '.join(known)}.",
            reason="unsupported_parameter",
            param="retention_type",
        )
