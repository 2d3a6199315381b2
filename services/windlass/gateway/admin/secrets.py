"""/v1/secrets: a tenant's own credentials for other services, write-only."""

from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from windlass.api.users.v1 import users_pb2 as pb
from windlass.api.users.v1 import users_pb2_grpc as rpc
from windlass.bounds import SECRET_BYTES
from windlass.core.app import App
from windlass.gateway.openai.rendering import Json, page
from windlass.gateway.parameters import After, Body, Limit, encodable
from windlass.gateway.plain import plain
from windlass.gateway.resource_router import ResourceRouter


class PutSecret(Body):
    """A secret's value; no answer ever holds it."""

    value: Annotated[
        SecretStr, Field(min_length=1, max_length=SECRET_BYTES), AfterValidator(encodable)
    ]


def _render(secret: pb.Secret) -> Json:
    return {"id": secret.name, **plain(secret, "secret")}


def secrets_router(app: App) -> ResourceRouter:
    """Secrets."""
    router = ResourceRouter(prefix="/secrets", tags=["secrets"])
    users = app.clients.stub(rpc.UsersServiceStub)

    @router.get("")
    async def list_secrets(after: After = "", limit: Limit = 0) -> Json:
        """Names and dates of the project's secrets."""
        answer = await users.ListSecrets(pb.ListSecretsRequest(after=after, limit=limit))
        return page([_render(secret) for secret in answer.secrets], answer.has_more)

    @router.put("/{name}")
    async def put_secret(name: str, body: PutSecret) -> Json:
        """Stores a secret of the project."""
        value = body.value.get_secret_value().encode()
        return _render(await users.PutSecret(pb.PutSecretRequest(name=name, value=value)))

    @router.delete("/{name}")
    async def delete_secret(name: str) -> Json:
        """Deletes a secret of the project."""
        await users.DeleteSecret(pb.DeleteSecretRequest(name=name))
        return {"id": name, "object": "secret", "deleted": True}

    return router
