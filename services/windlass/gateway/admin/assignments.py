"""/v1/clusters/…/assignments: which project may use which cluster."""

from typing import Annotated

from fastapi import Query
from google.protobuf import json_format
from pydantic import Field

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.clusters.v1 import clusters_pb2_grpc as rpc
from windlass.bounds import MAX_NODE_LABELS, MAX_PRICE_MICROS
from windlass.core.app import App
from windlass.core.ids import IDENTIFIER_LENGTH
from windlass.gateway.openai.rendering import Json, page
from windlass.gateway.parameters import After, Body, Limit
from windlass.gateway.plain import plain
from windlass.gateway.resource_router import ResourceRouter
from windlass.kubernetes.names import LABEL_LENGTH

Name = Annotated[str, Field(max_length=LABEL_LENGTH)]
Id = Annotated[str, Query(max_length=IDENTIFIER_LENGTH)]


class Assign(Body):
    """A project's use of a cluster; fields left out get their defaults."""

    namespace: Name = ""
    cluster_queue: Name = ""
    local_queue: Name = ""
    priority_class: Name = ""
    price_micros: Annotated[int, Field(ge=0, le=MAX_PRICE_MICROS)] = 0
    node_selector: Annotated[dict[str, str], Field(max_length=MAX_NODE_LABELS)] = {}


def render_assignment(found: pb.Assignment) -> Json:
    """An assignment; its id names cluster and project."""
    identifier = f"{found.cluster_id}/{found.project_id}"
    return {"id": identifier, **plain(found, "cluster.assignment")}


def assignments_router(app: App) -> ResourceRouter:
    """Assignments of projects to clusters."""
    router = ResourceRouter(tags=["clusters"])
    clusters = app.clients.stub(rpc.ClustersServiceStub)

    async def listed(cluster_id: str, project_id: str, after: str, limit: int) -> Json:
        request = pb.ListAssignmentsRequest(
            cluster_id=cluster_id, project_id=project_id, after=after, limit=limit
        )
        answer = await clusters.ListAssignments(request)
        return page([render_assignment(one) for one in answer.assignments], answer.has_more)

    @router.get("/clusters/assignments")
    async def list_assignments(project_id: Id = "", after: After = "", limit: Limit = 0) -> Json:
        """Assignments to any cluster: the project's own, or all for a platform administrator."""
        return await listed("", project_id, after, limit)

    @router.get("/clusters/{cluster_id}/assignments")
    async def list_assignments_of_cluster(
        cluster_id: str, project_id: Id = "", after: After = "", limit: Limit = 0
    ) -> Json:
        """Assignments to one cluster, as far as the caller may see them."""
        return await listed(cluster_id, project_id, after, limit)

    @router.put("/clusters/{cluster_id}/assignments/{project_id}")
    async def put_assignment(cluster_id: str, project_id: str, body: Assign) -> Json:
        """Lets a project use a cluster (platform administrators)."""
        wanted = json_format.ParseDict(body.model_dump(), pb.Assignment())
        wanted.cluster_id, wanted.project_id = cluster_id, project_id
        request = pb.PutAssignmentRequest(assignment=wanted)
        return render_assignment(await clusters.PutAssignment(request))

    @router.delete("/clusters/{cluster_id}/assignments/{project_id}")
    async def delete_assignment(cluster_id: str, project_id: str) -> Json:
        """Ends a project's use of a cluster, once its jobs there have ended."""
        await clusters.DeleteAssignment(
            pb.DeleteAssignmentRequest(cluster_id=cluster_id, project_id=project_id)
        )
        identifier = f"{cluster_id}/{project_id}"
        return {"id": identifier, "object": "cluster.assignment", "deleted": True}

    return router
