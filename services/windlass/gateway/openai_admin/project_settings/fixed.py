"""Settings of OpenAI's that have one value here: hosted tools, and how long answers are kept.

No tool runs here on behalf of a model, and no prompt or answer is kept: `store: true` is refused,
and neither logs nor accounting have them. So both say what is true, and a change to something else
is refused by its name.
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

    async def see(self, project_id: str) -> None:
        """Raises NotFound unless the caller may see a project."""
        await self._users.GetProject(users_pb2.GetProjectRequest(project_id=project_id))

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
        _require_nothing_kept(body.retention_type, ZERO)
        return {"object": "organization.data_retention", "type": ZERO}

    @router.get("/projects/{project_id}/data_retention")
    async def get_project_data_retention(project_id: str) -> Json:
        """Says how long prompts and answers are kept: as those of the organization."""
        await settings.see(project_id)
        return {"object": "project.data_retention", "type": _DEFAULT}

    @router.post("/projects/{project_id}/data_retention")
    async def update_project_data_retention(project_id: str, body: ProjectRetention) -> Json:
        """Takes what is true; to keep something is refused."""
        await settings.see(project_id)
        await settings.change()
        _require_nothing_kept(body.retention_type, ZERO, _DEFAULT)
        return {"object": "project.data_retention", "type": _DEFAULT}


def _require_nothing_kept(wanted: str, *same: str) -> None:
    if wanted not in same:
        raise InvalidArgument(
            f"This installation keeps no prompts and answers: retention_type is "
            f"{' or '.join(same)}.",
            reason="unsupported_parameter",
            param="retention_type",
        )
