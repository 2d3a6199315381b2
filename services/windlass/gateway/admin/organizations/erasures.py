"""Deletion of projects and organizations, and /v1/erasures."""

from typing import Annotated

from fastapi import Query

from windlass.api.users.v1 import erasures_pb2 as pb
from windlass.api.users.v1 import erasures_pb2_grpc as rpc
from windlass.bounds import TITLE_LENGTH
from windlass.core.app import App
from windlass.gateway.openai.rendering import Json, page
from windlass.gateway.parameters import After, Limit
from windlass.gateway.plain import plain
from windlass.gateway.resource_router import ResourceRouter

KIND = "erasure"
Title = Annotated[str, Query(max_length=TITLE_LENGTH)]


def erasures_router(app: App) -> ResourceRouter:
    """The routes of what is deleted."""
    router = ResourceRouter(tags=["organizations and projects"])
    erasures = app.clients.stub(rpc.ErasuresServiceStub)

    @router.delete("/projects/{project_id}")
    async def delete_project(project_id: str, title: Title = "") -> Json:
        """Ends a project, and erases it after the grace period; needs its title."""
        request = pb.DeleteProjectRequest(project_id=project_id, title=title)
        return plain(await erasures.DeleteProject(request), KIND)

    @router.post("/projects/{project_id}/undelete")
    async def undelete_project(project_id: str) -> Json:
        """Makes a deleted project live again, without its keys."""
        request = pb.UndeleteProjectRequest(project_id=project_id)
        return plain(await erasures.UndeleteProject(request), KIND)

    @router.delete("/organizations/{organization_id}")
    async def delete_organization(organization_id: str, title: Title = "") -> Json:
        """Ends an organization, and erases it after the grace period; needs its title."""
        request = pb.DeleteOrganizationRequest(organization_id=organization_id, title=title)
        return plain(await erasures.DeleteOrganization(request), KIND)

    @router.post("/organizations/{organization_id}/undelete")
    async def undelete_organization(organization_id: str) -> Json:
        """Makes a deleted organization live again, without its keys (platform administrators)."""
        request = pb.UndeleteOrganizationRequest(organization_id=organization_id)
        return plain(await erasures.UndeleteOrganization(request), KIND)

    @router.post("/organizations/{organization_id}/hold")
    async def hold_organization(organization_id: str) -> Json:
        """A legal hold: nothing of it is erased until released (platform administrators)."""
        await erasures.HoldOrganization(pb.HoldOrganizationRequest(organization_id=organization_id))
        return {"id": organization_id, "object": "organization", "held": True}

    @router.post("/organizations/{organization_id}/release")
    async def release_organization(organization_id: str) -> Json:
        """Ends a legal hold (platform administrators)."""
        request = pb.ReleaseOrganizationRequest(organization_id=organization_id)
        await erasures.ReleaseOrganization(request)
        return {"id": organization_id, "object": "organization", "held": False}

    @router.get("/erasures")
    async def list_erasures(after: After = "", limit: Limit = 0) -> Json:
        """Deletions and erasures, newest first."""
        answer = await erasures.ListErasures(pb.ListErasuresRequest(after=after, limit=limit))
        return page([plain(one, KIND) for one in answer.erasures], answer.has_more)

    @router.get("/erasures/{erasure_id}")
    async def get_erasure(erasure_id: str) -> Json:
        """Returns one erasure: how far each service is, and at the end the signed report."""
        return plain(await erasures.GetErasure(pb.GetErasureRequest(erasure_id=erasure_id)), KIND)

    return router
