"""/v1/organization/directory."""

from typing import Annotated

from pydantic import Field

from windlass.api.users.v1 import directory_pb2 as pb
from windlass.api.users.v1 import directory_pb2_grpc as rpc
from windlass.api.users.v1 import users_pb2
from windlass.core.app import App
from windlass.gateway.admin.members import role_number
from windlass.gateway.openai.rendering import Json
from windlass.gateway.parameters import Body
from windlass.gateway.plain import enum_name
from windlass.gateway.resource_router import ResourceRouter


class PutDirectory(Body):
    """Settings for the people whom a directory provisions."""

    role: Annotated[
        str | None,
        Field(description="Role in the organization; null: they get no membership."),
    ] = None


def directory_router(app: App) -> ResourceRouter:
    """Settings of the directory that provisions the organization by SCIM."""
    router = ResourceRouter(prefix="/organization/directory", tags=["administration"])
    directory = app.clients.stub(rpc.DirectoryServiceStub)

    @router.get("")
    async def get_directory() -> Json:
        """Returns whether a directory provisions the organization."""
        return _render(await directory.GetDirectory(pb.GetDirectoryRequest()))

    @router.put("")
    async def put_directory(body: PutDirectory) -> Json:
        """Lets a directory provision the organization (organization owners)."""
        role = users_pb2.ROLE_UNSPECIFIED if body.role is None else role_number(body.role)
        return _render(await directory.PutDirectory(pb.PutDirectoryRequest(role=role)))

    @router.delete("")
    async def delete_directory() -> Json:
        """Ends that; people and groups stay as the organization's own."""
        await directory.DeleteDirectory(pb.DeleteDirectoryRequest())
        return {"object": "organization.directory.deleted", "deleted": True}

    return router


def _render(directory: pb.Directory) -> Json:
    role = enum_name(users_pb2.Role.DESCRIPTOR, directory.role) if directory.role else None
    return {
        "object": "organization.directory",
        "enabled": directory.enabled,
        "role": role,
        "created_at": directory.created_at or None,
        "updated_at": directory.updated_at or None,
    }
