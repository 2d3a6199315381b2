"""RPCs of users for other services."""

import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from windlass.api.auth.v1 import auth_pb2
from windlass.api.users.v1 import users_pb2 as pb
from windlass.api.users.v1 import users_pb2_grpc as rpc
from windlass.core.db.coalescing import Coalescer
from windlass.core.db.paging import cut, page_size
from windlass.core.db.wake import Wake
from windlass.core.rpc import audited, following
from windlass.core.rpc.interceptor import AuditSink
from windlass.users import messages
from windlass.users.domain import KEYS_TOPIC, ROLE_NUMBERS
from windlass.users.encryption.assembly import Encryption
from windlass.users.keys.changes import KeyChanges
from windlass.users.keys.store import CHANGES_SECONDS, KeyStore
from windlass.users.store import TenantStore

# A change of keys wakes their watchers; this is for a change whose server was killed before.
BEAT_SECONDS = 0.7
# Of keys that one beat names, which is a message well below 1 MiB.
MAX_CHANGES = 10_000
# Projects of one answer, which is a message well below 1 MiB.
RESIDENCIES = 10_000
_REVEAL = "windlass.api.users.v1.UsersInternalService/RevealSecret"


class UsersInternalServicer(rpc.UsersInternalServiceServicer):
    """UsersInternalService."""

    def __init__(
        self,
        tenants: TenantStore,
        keys: KeyStore,
        key_changes: KeyChanges,
        encryption: Encryption,
        wake: Wake,
        audit: AuditSink,
    ):
        self._tenants = tenants
        self._keys = keys
        self._key_changes = key_changes
        self._secrets = encryption.secrets
        self._object_keys = encryption.object_keys
        self._wake = wake
        self._audit = audit
        # Every watch of keys reads the same.
        self._changes: Coalescer[None, Sequence[tuple[int, str, str]]] = Coalescer(
            "changes of keys", self._read_changes, abreast=1
        )

    async def LookupApiKey(
        self, request: pb.LookupApiKeyRequest, context: Any
    ) -> pb.LookupApiKeyResponse:
        """The live key of a digest or an id, and the scope of the call."""
        found = await self._keys.lookup(
            request.digest,
            key_id=request.key_id,
            organization_id=request.organization_id,
            project_id=request.project_id,
        )
        return pb.LookupApiKeyResponse(
            key=messages.api_key(found.key),
            organization_id=found.organization_id,
            project_id=found.project_id,
            roles=[ROLE_NUMBERS[role] for role in found.roles],
            permissions=sorted(found.permissions),
            expires_at=found.expires_at,
            weakened=found.is_weakened,
            fresh_until=found.fresh_until,
            models=found.models,
            certificate_demands=[
                auth_pb2.CertificateDemand(certificates=one) for one in found.certificate_demands
            ],
            organization_networks=found.organization_networks,
        )

    async def RecordKeyUse(
        self, request: pb.RecordKeyUseRequest, context: Any
    ) -> pb.RecordKeyUseResponse:
        """Notes when and from where keys were used last."""
        await self._key_changes.note_uses({one.key_id: one.address for one in request.uses})
        return pb.RecordKeyUseResponse()

    async def WatchKeys(
        self, request: pb.WatchKeysRequest, context: Any
    ) -> AsyncIterator[pb.KeyBeat]:
        """Beats that name changed keys.

        Each beat reads the changes of the last seconds and sends those that this
        stream has not sent: a change that commits late is sent late, never missed.
        """
        pace = following.BEAT_SECONDS if request.resting else BEAT_SECONDS
        listener = self._wake.listen(KEYS_TOPIC)
        try:
            sent = {change for change, *_ in await self._changes(None)}
            yield pb.KeyBeat(reset=True)
            read_at = time.monotonic()
            while True:
                await listener.wait_for_beat(pace)
                changes = await self._changes(None)
                gap = time.monotonic() - read_at > CHANGES_SECONDS / 3
                read_at = time.monotonic()
                news = [one for one in changes if one[0] not in sent]
                deaf = not request.hears_organizations and any(one[2] for one in news)
                yield _beat(news, reset=gap or deaf)
                sent = {change for change, *_ in changes}
        finally:
            listener.close()

    async def _read_changes(self, asked: Sequence[None]) -> list[Sequence[tuple[int, str, str]]]:
        return [await self._keys.recent_changes()] * len(asked)

    async def LookupProject(self, request: pb.LookupProjectRequest, context: Any) -> pb.Project:
        """A project by its id alone."""
        return messages.project(await self._tenants.any_project(request.project_id))

    async def ListResidencies(
        self, request: pb.ListResidenciesRequest, context: Any
    ) -> pb.ListResidenciesResponse:
        """The projects that have a geography."""
        size = page_size(request.limit, default=RESIDENCIES, max_limit=RESIDENCIES)
        rows = await self._tenants.residencies(after=request.after, limit=size + 1)
        page, more = cut(rows, size)
        return pb.ListResidenciesResponse(
            residencies=[pb.Residency(project_id=one, geography=where) for one, where in page],
            has_more=more,
        )

    async def RevealSecret(
        self, request: pb.RevealSecretRequest, context: Any
    ) -> pb.RevealSecretResponse:
        """A secret's value, for the service that uses it; an event of its project's audit log."""
        value = await self._secrets.reveal(request.project_id, request.name)
        project = await self._tenants.any_project(request.project_id)
        used = audited.AuditedChange(request.name, None, {"used_by": request.used_by})
        self._audit.note(project.organization_id, project.id, _REVEAL, used)
        return pb.RevealSecretResponse(value=value)

    async def FindSecrets(
        self, request: pb.FindSecretsRequest, context: Any
    ) -> pb.FindSecretsResponse:
        """The secrets of the given names that a project has."""
        found = await self._secrets.find(request.project_id, request.names)
        return pb.FindSecretsResponse(names=found)

    async def GetObjectSealing(
        self, request: pb.GetObjectSealingRequest, context: Any
    ) -> pb.ObjectSealing:
        """Returns whether, and by which key, objects of a project are sealed."""
        found = await self._object_keys.sealing(request.project_id)
        if found is None:
            return pb.ObjectSealing()
        return pb.ObjectSealing(key_id=found.key_id, begins_in_seconds=found.begins_in_seconds)

    async def OpenObjectKey(
        self, request: pb.OpenObjectKeyRequest, context: Any
    ) -> pb.OpenObjectKeyResponse:
        """A key of a project, for a process that has its objects."""
        opened = await self._object_keys.open(request.project_id, request.key_id)
        return pb.OpenObjectKeyResponse(secret=opened.secret, keep_seconds=opened.seconds)


def _beat(news: Sequence[tuple[int, str, str]], *, reset: bool) -> pb.KeyBeat:
    # To ask about every key is less than to hear of so many.
    if len(news) > MAX_CHANGES:
        return pb.KeyBeat(reset=True)
    return pb.KeyBeat(
        changed_key_ids=[key for _, key, _ in news if key],
        changed_organization_ids=[organization for _, _, organization in news if organization],
        reset=reset,
    )
