"""The servicer of external keys."""

import asyncio
from collections.abc import Mapping
from typing import Any

from windlass.api.users.v1 import external_keys_pb2 as pb
from windlass.api.users.v1 import external_keys_pb2_grpc as rpc
from windlass.api.users.v1 import users_pb2
from windlass.core.clock import now_seconds
from windlass.core.db.paging import cut, page_size
from windlass.core.db.wake import Wake
from windlass.core.errors import InvalidArgument
from windlass.core.ids import new_id
from windlass.core.rpc import audited
from windlass.core.rpc.auth import current
from windlass.users import messages
from windlass.users.domain import valid_title
from windlass.users.encryption.data_keys import DataKeyStore
from windlass.users.encryption.domain import OwnKey, valid_place, valid_token
from windlass.users.encryption.external_keys import ExternalKeyStore
from windlass.users.encryption.keepers import KeyKeepers
from windlass.users.encryption.object_keys import ObjectKeyStore
from windlass.users.encryption.project_keys import ProjectDataKeys
from windlass.users.encryption.resealing import TOPIC
from windlass.users.store import TenantStore


class ExternalKeysServicer(rpc.ExternalKeysServiceServicer):
    """ExternalKeysService."""

    def __init__(
        self,
        tenants: TenantStore,
        keys: ExternalKeyStore,
        keepers: KeyKeepers,
        project_keys: ProjectDataKeys,
        data_keys: DataKeyStore,
        object_keys: ObjectKeyStore,
        wake: Wake,
    ):
        self._tenants = tenants
        self._keys = keys
        self._keepers = keepers
        self._project_keys = project_keys
        self._data_keys = data_keys
        self._object_keys = object_keys
        self._wake = wake

    async def CreateExternalKey(
        self, request: pb.CreateExternalKeyRequest, context: Any
    ) -> pb.ExternalKey:
        """Notes where a key of the caller's organization is."""
        organization_id, kind = current().organization_id, request.WhichOneof("place")
        if kind is None:
            raise InvalidArgument("type must be aws, vault or pkcs11.", param="type")
        name, place = valid_title(request.name, "name"), valid_place(kind, _parts(request, kind))
        self._keepers.admit(organization_id, kind, place)
        if kind == "aws":
            await self._require_own(organization_id, place["external_id"])
        credential = valid_token(request.vault.token) if kind == "vault" else ""
        key_id = new_id("ekm_")
        key = OwnKey(
            id=key_id,
            organization_id=organization_id,
            name=name,
            kind=kind,
            place=place,
            credential=self._keepers.seal(key_id, credential),
            created_at=now_seconds(),
        )
        made = await self._keys.create(key)
        audited.change(None, {"id": key_id, "name": name, "kind": kind}, resource=key_id)
        return _message(made)

    async def GetExternalKey(
        self, request: pb.GetExternalKeyRequest, context: Any
    ) -> pb.ExternalKey:
        """Returns one key of the organization."""
        return _message(await self._keys.get(current().organization_id, request.external_key_id))

    async def ListExternalKeys(
        self, request: pb.ListExternalKeysRequest, context: Any
    ) -> pb.ListExternalKeysResponse:
        """Keys of the organization, by their creation."""
        size = page_size(request.limit)
        rows = await self._keys.list(
            current().organization_id,
            oldest_first=request.oldest_first,
            after=request.after,
            limit=size + 1,
        )
        page, more = cut(rows, size)
        return pb.ListExternalKeysResponse(external_keys=map(_message, page), has_more=more)

    async def DeleteExternalKey(
        self, request: pb.DeleteExternalKeyRequest, context: Any
    ) -> pb.ExternalKey:
        """Forgets a key that wraps nothing."""
        return _message(await self._keys.delete(current().organization_id, request.external_key_id))

    async def ValidateExternalKey(
        self, request: pb.ValidateExternalKeyRequest, context: Any
    ) -> pb.ValidateExternalKeyResponse:
        """Wraps and unwraps something by a key."""
        await self._project_keys.validate(current().organization_id, request.external_key_id)
        return pb.ValidateExternalKeyResponse()

    async def SetProjectKey(
        self, request: pb.SetProjectKeyRequest, context: Any
    ) -> users_pb2.Project:
        """Gives a project of the organization another data key.

        It answers once every process seals by it what is put from then on.
        """
        organization_id, wanted = current().organization_id, request.external_key_id
        project = await self._tenants.project(organization_id, request.project_id)
        if request.rotate:
            if wanted:
                message = "A data key is rotated by the external key that its project has."
                raise InvalidArgument(message, param="external_key_id")
            wanted = project.external_key_id
        if request.rotate or project.external_key_id != wanted:
            key = await self._project_keys.new(organization_id, project.id, wanted)
            await self._data_keys.replace(key)
            # The row of the call itself names the external key.
            audited.also([project.id])
            self._wake.touch(TOPIC)
            if sealing := await self._object_keys.sealing(project.id):
                await asyncio.sleep(sealing.begins_in_seconds)
            project = await self._tenants.project(organization_id, project.id)
        return messages.project(project)

    async def _require_own(self, organization_id: str, external_id: str) -> None:
        """Raises InvalidArgument for another's id, by which we would act for another.

        See https://docs.aws.amazon.com/IAM/latest/UserGuide/confused-deputy.html.
        """
        if external_id == organization_id:
            return
        found = await self._tenants.projects(
            organization_id, only=external_id, after="", limit=1, archived=True
        )
        if not found:
            raise InvalidArgument(
                f"external_id must be {organization_id}, or the id of a project of it.",
                param="external_id",
            )


def _parts(request: pb.CreateExternalKeyRequest, kind: str) -> Mapping[str, str]:
    place = getattr(request, kind)
    return {field.name: getattr(place, field.name) for field in place.DESCRIPTOR.fields}


def _message(key: OwnKey) -> pb.ExternalKey:
    message = pb.ExternalKey(
        id=key.id,
        organization_id=key.organization_id,
        name=key.name,
        created_at=key.created_at,
        project_ids=key.project_ids,
    )
    place = getattr(message, key.kind)
    for name, value in key.place.items():
        setattr(place, name, value)
    return message
