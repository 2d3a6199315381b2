"""Roles for a time, on request: `/elevations` of `/v1/organization` and of a project, and rules.

Which roles may be asked for, and by whom, says `/roles/{role_id}/elevation` beside it.
"""

from collections.abc import Callable
from typing import Annotated, Any, Literal

from fastapi import Depends, Path
from pydantic import Field

from windlass.api.users.v1 import elevations_pb2 as pb
from windlass.api.users.v1 import elevations_pb2_grpc as rpc
from windlass.api.users.v1 import roles_pb2, roles_pb2_grpc
from windlass.bounds import (
    MAX_APPROVALS,
    MAX_ELEVATION_SECONDS,
    MIN_ELEVATION_SECONDS,
    REASON_LENGTH,
)
from windlass.core.app import App
from windlass.core.errors import NotFound
from windlass.core.ids import IDENTIFIER_LENGTH
from windlass.gateway.openai.rendering import Json, page
from windlass.gateway.parameters import After, Body, Limit
from windlass.gateway.plain import enum_name, plain
from windlass.gateway.resource_router import ResourceRouter

State = Literal["pending", "approved", "denied", "withdrawn", "expired", "ended"]
Seconds = Annotated[int, Field(ge=MIN_ELEVATION_SECONDS, le=MAX_ELEVATION_SECONDS)]


class NewElevation(Body):
    """A role that the caller asks for."""

    role_id: Annotated[str, Field(min_length=1, max_length=IDENTIFIER_LENGTH)]
    reason: Annotated[str, Field(min_length=1, max_length=REASON_LENGTH)]
    seconds: Seconds


class ElevationVerdict(Body):
    """Words to a decision."""

    comment: Annotated[str, Field(max_length=REASON_LENGTH)] = ""


class ElevationAsking(Body):
    """Members who may ask for a role, how long they get it, and how many others approve."""

    askers: Literal["none", "project", "organization"]
    longest_seconds: Seconds | None = None
    approvals: Annotated[int, Field(ge=1, le=MAX_APPROVALS)] | None = None


# Coroutines, since FastAPI would run plain functions in a thread.
async def _organization() -> str:
    return ""


async def _project(project_id: Annotated[str, Path()]) -> str:
    return project_id


def organization_elevations_router(app: App) -> ResourceRouter:
    """Roles that members of the organization ask for."""
    return _router(app, "organization", "/organization", _organization)


def project_elevations_router(app: App) -> ResourceRouter:
    """Roles that members of a project ask for."""
    return _router(app, "project", "/projects/{project_id}", _project)


def _router(app: App, kind: str, prefix: str, where: Callable[..., Any]) -> ResourceRouter:
    router = ResourceRouter(prefix=prefix, tags=["members"])
    _add_rules(router, kind, Depends(where), app.clients.stub(roles_pb2_grpc.RolesServiceStub))
    elevations = app.clients.stub(rpc.ElevationsServiceStub)
    _add_requests(router, kind, Depends(where), elevations)
    _add_decisions(router, kind, Depends(where), elevations)
    return router


def _add_rules(
    router: ResourceRouter, kind: str, where: Any, roles: roles_pb2_grpc.RolesServiceAsyncStub
) -> None:
    async def find(project_id: str, role_id: str) -> roles_pb2.CustomRole:
        role = await roles.GetRole(roles_pb2.GetRoleRequest(role_id=role_id))
        if role.project_id != project_id:
            raise NotFound(f"No role {role_id!r}.", param="role_id")
        return role

    @router.get("/roles/{role_id}/elevation", name=f"get_{kind}_role_elevation")
    async def get_rules(role_id: str, project_id: str = where) -> Json:
        """Returns who may ask for a role."""
        return _rules(await find(project_id, role_id))

    @router.put("/roles/{role_id}/elevation", name=f"put_{kind}_role_elevation")
    async def put_rules(role_id: str, body: ElevationAsking, project_id: str = where) -> Json:
        """Sets who may ask for a role; withdraws what is pending of it."""
        await find(project_id, role_id)
        wanted = "UNSPECIFIED" if body.askers == "none" else body.askers.upper()
        rules = roles_pb2.ElevationRules(
            askers=roles_pb2.ElevationAskers.Value(f"ELEVATION_ASKERS_{wanted}"),
            longest_seconds=body.longest_seconds or 0,
            approvals=body.approvals or 0,
        )
        request = roles_pb2.UpdateRoleRequest(role_id=role_id, elevation=rules)
        return _rules(await roles.UpdateRole(request))


def _add_requests(
    router: ResourceRouter, kind: str, where: Any, elevations: rpc.ElevationsServiceAsyncStub
) -> None:
    @router.get("/elevation_roles", name=f"list_{kind}_elevation_roles")
    async def list_requestable(
        after: After = "", limit: Limit = 0, project_id: str = where
    ) -> Json:
        """Roles that the caller may ask for here, by their ids."""
        request = pb.ListRequestableRolesRequest(project_id=project_id, after=after, limit=limit)
        answer = await elevations.ListRequestableRoles(request)
        return page([_role(role) for role in answer.roles], answer.has_more)

    @router.post("/elevations", name=f"request_{kind}_elevation")
    async def request_elevation(body: NewElevation, project_id: str = where) -> Json:
        """Asks for a role for a time; the same that is pending answers a repeat."""
        request = pb.RequestElevationRequest(
            role_id=body.role_id, project_id=project_id, reason=body.reason, seconds=body.seconds
        )
        return plain(await elevations.RequestElevation(request), "elevation")

    @router.get("/elevations", name=f"list_{kind}_elevations")
    async def list_elevations(
        state: State | None = None, after: After = "", limit: Limit = 0, project_id: str = where
    ) -> Json:
        """Requests, the newest first: the caller's own, or all for who may see members."""
        number = pb.ElevationState.Value(f"ELEVATION_STATE_{(state or 'unspecified').upper()}")
        request = pb.ListElevationsRequest(
            project_id=project_id, state=number, after=after, limit=limit
        )
        answer = await elevations.ListElevations(request)
        return page([plain(one, "elevation") for one in answer.elevations], answer.has_more)

    @router.get("/elevations/{elevation_id}", name=f"get_{kind}_elevation")
    async def get_elevation(elevation_id: str, project_id: str = where) -> Json:
        """Returns one request."""
        return plain(await _find(elevations, project_id, elevation_id), "elevation")


def _add_decisions(
    router: ResourceRouter, kind: str, where: Any, elevations: rpc.ElevationsServiceAsyncStub
) -> None:
    path = "/elevations/{elevation_id}"

    @router.post(f"{path}/approve", name=f"approve_{kind}_elevation")
    async def approve(elevation_id: str, body: ElevationVerdict, project_id: str = where) -> Json:
        """Approves what another member asks for; the last approval gives the role."""
        await _find(elevations, project_id, elevation_id)
        request = pb.DecideElevationRequest(elevation_id=elevation_id, comment=body.comment)
        return plain(await elevations.ApproveElevation(request), "elevation")

    @router.post(f"{path}/deny", name=f"deny_{kind}_elevation")
    async def deny(elevation_id: str, body: ElevationVerdict, project_id: str = where) -> Json:
        """Denies what another member asks for."""
        await _find(elevations, project_id, elevation_id)
        request = pb.DecideElevationRequest(elevation_id=elevation_id, comment=body.comment)
        return plain(await elevations.DenyElevation(request), "elevation")

    @router.post(f"{path}/withdraw", name=f"withdraw_{kind}_elevation")
    async def withdraw(elevation_id: str, project_id: str = where) -> Json:
        """Withdraws what the caller asked for."""
        await _find(elevations, project_id, elevation_id)
        request = pb.WithdrawElevationRequest(elevation_id=elevation_id)
        return plain(await elevations.WithdrawElevation(request), "elevation")

    @router.post(f"{path}/end", name=f"end_{kind}_elevation")
    async def end(elevation_id: str, project_id: str = where) -> Json:
        """Takes the role before its time."""
        await _find(elevations, project_id, elevation_id)
        request = pb.EndElevationRequest(elevation_id=elevation_id)
        return plain(await elevations.EndElevation(request), "elevation")


async def _find(
    elevations: rpc.ElevationsServiceAsyncStub, project_id: str, elevation_id: str
) -> pb.Elevation:
    found = await elevations.GetElevation(pb.GetElevationRequest(elevation_id=elevation_id))
    if found.project_id != project_id:
        raise NotFound(f"No elevation {elevation_id!r}.", param="elevation_id")
    return found


def _rules(role: roles_pb2.CustomRole) -> Json:
    rules = role.elevation
    askers = enum_name(roles_pb2.ElevationAskers.DESCRIPTOR, rules.askers)
    return {
        "object": "role.elevation",
        "id": role.id,
        "askers": "none" if askers == "unspecified" else askers,
        "longest_seconds": rules.longest_seconds or None,
        "approvals": rules.approvals or None,
    }


def _role(role: roles_pb2.CustomRole) -> Json:
    return {
        **_rules(role),
        "object": "elevation_role",
        "name": role.name,
        "description": role.description or None,
        "permissions": list(role.permissions),
    }
