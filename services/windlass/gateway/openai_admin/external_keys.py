"""/v1/organization/external_keys: keys of an organization's own."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from windlass.api.users.v1 import external_keys_pb2 as pb
from windlass.api.users.v1 import external_keys_pb2_grpc as rpc
from windlass.bounds import TITLE_LENGTH
from windlass.core.app import App
from windlass.core.errors import InvalidArgument
from windlass.gateway.openai.rendering import Json, page
from windlass.gateway.openai_admin.roles.rendering import Order
from windlass.gateway.parameters import After, Body, Limit
from windlass.gateway.resource_router import ResourceRouter

# By type: the parameters that say where a key is. `vault` and `pkcs11` are ours.
_PARTS: Mapping[str, tuple[str, ...]] = {
    "aws": ("kms_arn", "role_arn", "external_id"),
    "vault": ("address", "mount", "key", "namespace", "token"),
    "pkcs11": ("token_name", "key_label"),
}
_PLACES = {"aws": pb.AwsKey, "vault": pb.VaultKey, "pkcs11": pb.Pkcs11Key}
_DEFAULTS = {"mount": "transit"}
_HIDDEN = "token"


def _supported(*values: str) -> Callable[[str], str]:
    """A check that refuses by its name what OpenAI has and this installation has not."""

    def check(value: str) -> str:
        if value not in values:
            known = ", ".join(values)
            raise ValueError(f"{value[:32]} is not supported by this installation, but {known}")
        return value

    return check


Kind = Annotated[
    str, AfterValidator(_supported(*_PARTS)), Field(json_schema_extra={"enum": list(_PARTS)})
]
Purpose = Annotated[
    str, AfterValidator(_supported("ekm")), Field(json_schema_extra={"enum": ["ekm"]})
]


class NewExternalKey(Body):
    """Place of a key: `type`, and the parameters of that type."""

    name: Annotated[str, Field(min_length=1, max_length=TITLE_LENGTH)]
    type: Kind
    purpose: Purpose | None = None
    kms_arn: str | None = None
    role_arn: str | None = None
    external_id: str | None = None
    address: str | None = None
    mount: str | None = None
    key: str | None = None
    namespace: str | None = None
    token: str | None = None
    token_name: str | None = None
    key_label: str | None = None


def external_keys_router(app: App) -> ResourceRouter:
    """External keys of the organization."""
    router = ResourceRouter(prefix="/organization/external_keys", tags=["administration"])
    keys = app.clients.stub(rpc.ExternalKeysServiceStub)

    @router.post("")
    async def create_external_key(body: NewExternalKey) -> Json:
        """Notes where a key is; `validate` tries it."""
        return _render(await keys.CreateExternalKey(_request(body)))

    @router.get("")
    async def list_external_keys(
        after: After = "",
        limit: Limit = 0,
        order: Order = "asc",
        purpose: Literal["ekm", "psp_decryption"] = "ekm",
    ) -> Json:
        """Keys of the organization, by their creation; none is for another purpose than `ekm`."""
        if purpose != "ekm":
            return page([], has_more=False)
        request = pb.ListExternalKeysRequest(after=after, limit=limit, oldest_first=order == "asc")
        answer = await keys.ListExternalKeys(request)
        return page([_render(key) for key in answer.external_keys], answer.has_more)

    @router.get("/{external_key_id}")
    async def get_external_key(external_key_id: str) -> Json:
        """Returns one key."""
        request = pb.GetExternalKeyRequest(external_key_id=external_key_id)
        return _render(await keys.GetExternalKey(request))

    @router.delete("/{external_key_id}")
    async def delete_external_key(external_key_id: str) -> Json:
        """Forgets a key that wraps no project's data key."""
        request = pb.DeleteExternalKeyRequest(external_key_id=external_key_id)
        return _render(await keys.DeleteExternalKey(request))

    @router.post("/{external_key_id}/validate")
    async def validate_external_key(external_key_id: str) -> Json:
        """Wraps and unwraps something by a key, as a project's data key would be."""
        request = pb.ValidateExternalKeyRequest(external_key_id=external_key_id)
        await keys.ValidateExternalKey(request)
        return {"status": "valid"}

    return router


def _request(body: NewExternalKey) -> pb.CreateExternalKeyRequest:
    given: dict[str, Any] = body.model_dump(exclude_none=True)
    parts = _PARTS[body.type]
    for other in {name for names in _PARTS.values() for name in names} - set(parts):
        if other in given:
            message = f"{other} is no parameter of a key of type {body.type}."
            raise InvalidArgument(message, param=other)
    place = {name: given.get(name, _DEFAULTS.get(name, "")) for name in parts}
    request = pb.CreateExternalKeyRequest(name=body.name)
    getattr(request, body.type).MergeFrom(_PLACES[body.type](**place))
    return request


def _render(key: pb.ExternalKey) -> Json:
    kind = key.WhichOneof("place") or ""
    place = getattr(key, kind)
    return {
        "object": "organization.external_key",
        "id": key.id,
        "name": key.name,
        "created_at": key.created_at,
        "purpose": "ekm",
        # OpenAI's name for the organization here.
        "workspace_id": key.organization_id,
        "api_project_ids": list(key.project_ids),
        "type": kind,
        **{name: getattr(place, name) for name in _PARTS[kind] if name != _HIDDEN},
    }
