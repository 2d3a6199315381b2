"""/v1/audit_destinations: where the audit log is exported to."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr

from windlass.api.rbac.v1 import rbac_pb2 as pb
from windlass.api.rbac.v1 import rbac_pb2_grpc as rpc
from windlass.bounds import SECRET_BYTES, WEBHOOK_NAME_LENGTH, WEBHOOK_URL_LENGTH
from windlass.core.app import App
from windlass.gateway.openai.rendering import Json, page
from windlass.gateway.parameters import After, Body, Limit, encodable
from windlass.gateway.plain import plain
from windlass.gateway.resource_router import ResourceRouter

KIND = "audit_destination"


class NewAuditDestination(Body):
    """A receiver of the whole log, or of what comes from now on."""

    kind: Literal["webhook", "bucket", "syslog"]
    url: Annotated[
        str,
        Field(
            max_length=WEBHOOK_URL_LENGTH,
            description="https:// of a webhook or an S3 server; tls://HOST:PORT of syslog.",
        ),
    ]
    name: Annotated[
        str,
        Field(
            max_length=WEBHOOK_NAME_LENGTH,
            description="Name for people; empty: the host of the URL.",
        ),
    ] = ""
    bucket: Annotated[str, Field(max_length=63)] = ""
    prefix: Annotated[str, Field(max_length=512, description="Folder of the objects.")] = ""
    region: Annotated[str, Field(max_length=64, description="Empty: us-east-1.")] = ""
    access_key_id: Annotated[str, Field(max_length=256)] = ""
    secret_access_key: Annotated[
        SecretStr,
        Field(max_length=SECRET_BYTES, description="Of access_key_id; it is never shown."),
        AfterValidator(encodable),
    ] = SecretStr("")
    from_now: Annotated[bool, Field(description="Nothing of what is there already.")] = False


def audit_destinations_router(app: App) -> ResourceRouter:
    """Destinations of the audit log."""
    router = ResourceRouter(prefix="/audit_destinations", tags=["usage and audit"])
    destinations = app.clients.stub(rpc.AuditDestinationsServiceStub)

    @router.post("")
    async def create_audit_destination(body: NewAuditDestination) -> Json:
        """A new destination; a webhook's `signing_secret` is in this answer and nowhere else."""
        given = body.model_dump(exclude={"secret_access_key"})
        answer = await destinations.CreateAuditDestination(
            pb.CreateAuditDestinationRequest(
                **given,
                secret_access_key=body.secret_access_key.get_secret_value().encode(),
            )
        )
        return {**plain(answer.destination, KIND), "signing_secret": answer.secret or None}

    @router.get("")
    async def list_audit_destinations(after: After = "", limit: Limit = 0) -> Json:
        """The organization's destinations, newest first, each with how far it has come."""
        answer = await destinations.ListAuditDestinations(
            pb.ListAuditDestinationsRequest(after=after, limit=limit)
        )
        return page([plain(one, KIND) for one in answer.destinations], answer.has_more)

    @router.get("/{destination_id}")
    async def get_audit_destination(destination_id: str) -> Json:
        """Returns one destination, without its secret."""
        asked = pb.GetAuditDestinationRequest(destination_id=destination_id)
        return plain(await destinations.GetAuditDestination(asked), KIND)

    @router.delete("/{destination_id}")
    async def delete_audit_destination(destination_id: str) -> Json:
        """Deletes a destination; nothing more is sent to it."""
        asked = pb.DeleteAuditDestinationRequest(destination_id=destination_id)
        await destinations.DeleteAuditDestination(asked)
        return {"id": destination_id, "object": f"{KIND}.deleted", "deleted": True}

    return router
