"""RPCs of models for other services."""

import time
from collections.abc import AsyncIterator
from typing import Any

from windlass.api.models.v1 import models_pb2 as pb
from windlass.api.models.v1 import models_pb2_grpc as rpc
from windlass.core.clock import now_seconds
from windlass.core.db.wake import Wake
from windlass.core.errors import InvalidArgument, NotFound
from windlass.core.ids import new_name
from windlass.core.rpc.following import BEAT_SECONDS, LOOK_SECONDS
from windlass.models import messages
from windlass.models.artifacts import Artifacts
from windlass.models.domain import (
    Kind,
    Version,
    VersionState,
    artifact_prefix,
    import_name,
    tuned_name,
    version_prefix,
)
from windlass.models.grants.store import GrantStore
from windlass.models.listing import ModelList
from windlass.models.manifest import Manifest
from windlass.models.service import Uses, require_unused
from windlass.models.store import ModelStore, in_use

# Of names in one message, and of versions in one question.
BATCH = 1000
# Names of models that keep a stack from its end.
MAX_ADOPTED = 10


class ModelsInternalServicer(rpc.ModelsInternalServiceServicer):
    """ModelsInternalService."""

    def __init__(
        self,
        models: ModelStore,
        artifacts: Artifacts,
        listing: ModelList,
        grants: GrantStore,
        uses: Uses,
        wake: Wake,
    ):
        self._models = models
        self._artifacts = artifacts
        self._listing = listing
        self._grants = grants
        self._uses = uses
        self._wake = wake

    async def ResolveModel(self, request: pb.ResolveModelRequest, context: Any) -> pb.ResolvedModel:
        """The version that a name means to a project, with its files and its base's."""
        version = await self._resolve(request)
        resolved = pb.ResolvedModel(
            model=messages.model(version),
            object_prefix=version.object_prefix,
            manifest=messages.manifest(version.manifest),
            is_granted=await self._grants.exist(version),
        )
        if version.kind is Kind.ADAPTER:
            base = await self._models.version(version.base_version_id)
            resolved.base.CopyFrom(messages.resolved_base(base))
        if version.merged_version_id:
            merged = await self._models.version(version.merged_version_id)
            # One that a release before has deleted is known to the adapter still.
            if merged.state is VersionState.READY:
                resolved.merged.CopyFrom(messages.resolved_base(merged))
        return resolved

    async def RegisterModel(self, request: pb.RegisterModelRequest, context: Any) -> pb.Model:
        """Names a job's artifact; a repeat of the source answers the first."""
        kind = messages.kind_of(request.kind)
        if kind in (Kind.BASE, Kind.ADOPTED) or not request.source or not request.project_id:
            raise InvalidArgument("A job's result must name the job's own source and project.")
        if kind is Kind.ADAPTER and not request.base_version_id:
            raise InvalidArgument("An adapter must name its base model.", param="base_version_id")
        manifest = messages.manifest_of(request.manifest)
        prefix, traits = artifact_prefix(request.object_prefix), None
        if kind is Kind.ADAPTER:
            traits = await self._artifacts.adapter_traits(prefix, manifest)
        version = await self._models.register(
            Version(
                id=new_name("mv-"),
                organization_id=request.organization_id,
                project_id=request.project_id,
                name=tuned_name(request.id),
                kind=kind,
                manifest=manifest,
                object_prefix=prefix,
                adapter=traits,
                merged_of=request.merged_of,
                base_version_id=request.base_version_id,
                job_id=request.job_id,
                is_checkpoint=request.is_checkpoint,
                task=messages.task_of(request.task),
                parent=request.parent,
                source=request.source,
                created_at=now_seconds(),
            )
        )
        self._wake.touch("models")
        return messages.model(version)

    async def AdoptModel(self, request: pb.AdoptModelRequest, context: Any) -> pb.Model:
        """Names a model of a serving stack; a repeat of the same answers the first."""
        identifier, origin = new_name("mv-"), request.adopted_from
        if not origin.stack or not origin.model:
            raise InvalidArgument("The stack and its model are required.", param="adopted_from")
        version = await self._models.adopt(
            Version(
                id=identifier,
                organization_id=request.organization_id,
                project_id=request.project_id,
                name=import_name(request.id),
                kind=Kind.ADOPTED,
                manifest=Manifest(()),
                object_prefix=version_prefix(identifier),
                stack=origin.stack,
                upstream=origin.model,
                created_at=now_seconds(),
            )
        )
        self._wake.touch("models")
        return messages.model(version)

    async def FindAdopted(
        self, request: pb.FindAdoptedRequest, context: Any
    ) -> pb.FindAdoptedResponse:
        """The models that were adopted from a stack."""
        names, number = await self._models.adopted(request.stack, limit=MAX_ADOPTED)
        return pb.FindAdoptedResponse(ids=names, count=number)

    async def RetireModel(
        self, request: pb.RetireModelRequest, context: Any
    ) -> pb.RetireModelResponse:
        """Removes a checkpoint that nothing uses and no other project has, and its artifacts."""
        version = await self._models.registered(request.source)
        if version is None or version.state is not VersionState.READY:
            return pb.RetireModelResponse()
        if not version.is_checkpoint:
            raise InvalidArgument("Only checkpoints can be retired.", param="source")
        await require_unused(self._models, self._uses, version, version.project_id)
        if await self._grants.exist(version):
            raise in_use("other projects that were granted it")
        await self._models.delete(version)
        self._wake.touch("models")
        return pb.RetireModelResponse()

    async def LookupModel(
        self, request: pb.LookupModelRequest, context: Any
    ) -> pb.LookupModelResponse:
        """The meaning of a name in a project, and the revision it was read at."""
        # Read before the name: a change in between is heard by watch, never missed.
        revision = await self._models.revision()
        version = await self._resolve(request)
        return pb.LookupModelResponse(model=messages.servable(version), revision=revision)

    async def _resolve(self, request: pb.ResolveModelRequest | pb.LookupModelRequest) -> Version:
        try:
            return await self._models.resolve(request.project_id, request.id)
        except NotFound as error:
            if request.suggest:
                error.message += await self._listing.suggestion(request.project_id, request.id)
            raise

    async def LookupVersions(
        self, request: pb.LookupVersionsRequest, context: Any
    ) -> pb.LookupVersionsResponse:
        """The versions that have a name still."""
        if len(request.version_ids) > BATCH:
            raise InvalidArgument(
                f"At most {BATCH} versions are allowed in one call.", param="version_ids"
            )
        revision = await self._models.revision()
        found = await self._models.named(request.version_ids, request.project_id)
        return pb.LookupVersionsResponse(models=map(messages.servable, found), revision=revision)

    async def WatchModels(
        self, request: pb.WatchModelsRequest, context: Any
    ) -> AsyncIterator[pb.ModelsDelta]:
        """The names that change, in order of revision."""
        listener = self._wake.listen("models")
        try:
            after = request.HasField("after")
            revision = request.after if after else await self._models.revision()
            yield pb.ModelsDelta(revision=revision)
            looked_at = 0.0
            while True:
                woken = await listener.wait_for_beat(BEAT_SECONDS)
                if not woken and time.monotonic() - looked_at < LOOK_SECONDS - BEAT_SECONDS / 2:
                    yield pb.ModelsDelta(revision=revision)
                    continue
                looked_at = time.monotonic()
                while changes := await self._models.changes(revision, limit=BATCH):
                    revision = changes[-1].revision
                    yield pb.ModelsDelta(revision=revision, changes=map(messages.change, changes))
        finally:
            listener.close()
