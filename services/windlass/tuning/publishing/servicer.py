"""The servicer of published weights."""

from typing import Any

from windlass.api.clusters.v1 import clusters_pb2
from windlass.api.models.v1 import models_pb2
from windlass.api.tuning.v1 import publishing_pb2 as pb
from windlass.api.tuning.v1 import publishing_pb2_grpc as rpc
from windlass.core.objects import ObjectStore
from windlass.tuning.domain import Reader, unknown_run
from windlass.tuning.publishing.media import PublishingMedia, keys_of
from windlass.tuning.publishing.store import Row, VersionStore
from windlass.weight_versions.writing import DATA, MANIFEST


class PublishingServicer(rpc.PublishingServiceServicer):
    """PublishingService: each call asks anew what the project may read."""

    def __init__(
        self,
        store: VersionStore,
        media: PublishingMedia,
        objects: ObjectStore,
        *,
        publishes: bool,
        presign_seconds: int,
    ):
        self._store = store
        self._media = media
        self._objects = objects
        self._publishes = publishes
        self._presign_seconds = presign_seconds

    async def FindNewestVersion(
        self, request: pb.FindNewestVersionRequest, context: Any
    ) -> pb.FindNewestVersionResponse:
        """The number of the newest version that the project may follow."""
        row, message = await self._newest(request)
        return pb.FindNewestVersionResponse(version=row.version if row else 0, message=message)

    async def FindVersions(
        self, request: pb.FindVersionsRequest, context: Any
    ) -> clusters_pb2.FollowedWeights:
        """All versions that lead to the newest, with URLs that are good for a while."""
        row, message = await self._newest(request)
        chain = await self._store.chain(request.run_id, row.version) if row else ()
        if row is not None and not chain:
            message = "Versions that the newest one needs are gone; save for samplers anew."
        folder = self._media.folder(request.run_id)
        return clusters_pb2.FollowedWeights(
            run_id=request.run_id,
            versions=[
                clusters_pb2.WeightVersion(
                    version=one.version, files=[] if folder else await self._files(one)
                )
                for one in chain
            ],
            message=message,
            folder=folder,
        )

    async def _newest(
        self, request: pb.FindNewestVersionRequest | pb.FindVersionsRequest
    ) -> tuple[Row | None, str]:
        """The newest version, or why there is none; raises NotFound for a run of others."""
        reader = Reader(request.organization_id, request.project_id)
        if not await self._store.is_known(reader, request.run_id):
            raise unknown_run(request.run_id)
        if not self._publishes:
            return None, "This installation publishes no weights (tuning.publishing.medium)."
        row = await self._store.newest(reader, request.run_id)
        if row is None:
            return None, "The run has no weights for samplers that this project may read."
        if row.state != "ready":
            return None, row.message or "The first weights of the run are being published."
        return row, ""

    async def _files(self, row: Row) -> list[models_pb2.FileUrl]:
        keys = keys_of(row.project_id, row.run_id, row.version)
        facts = {
            DATA: (row.size, row.sha256),
            MANIFEST: (row.manifest_size, row.manifest_sha256),
        }
        return [
            models_pb2.FileUrl(
                path=name,
                url=await self._objects.presign_get(keys[name], expires=self._presign_seconds),
                bytes=size,
                sha256=bytes.fromhex(digest),
            )
            for name, (size, digest) in facts.items()
        ]
