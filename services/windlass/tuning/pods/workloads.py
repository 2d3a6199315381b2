"""Pods as workloads of clusters, with fresh URLs of the files of their models."""

from typing import Any

import sqlalchemy as sa

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.models.v1 import models_pb2
from windlass.api.models.v1.models_pb2_grpc import ModelsInternalServiceAsyncStub
from windlass.core.objects import ObjectStore
from windlass.tuning.pods.store import RUNNING
from windlass.tuning.pods.tables import LEASE

OWNER = "tuning"
# Of the engines that an agent knows.
TRAINER = "trainer"


class PodWorkloads:
    """Makes workloads; asks models where files lie, and signs their URLs."""

    def __init__(
        self, models: ModelsInternalServiceAsyncStub, objects: ObjectStore, *, presign_seconds: int
    ):
        self._models = models
        self._objects = objects
        self._presign_seconds = presign_seconds

    async def make(self, pod: sa.Row[Any]) -> pb.Workload:
        """The workload of a pod; raises grpc.aio.AioRpcError for a model that is gone."""
        made = pb.Workload(
            id=pod.id,
            kind=pb.WORKLOAD_KIND_LONG_RUNNING,
            owner=OWNER,
            organization_id=pod.organization_id,
            project_id=pod.project_id,
            cluster_id=pod.cluster_id,
            generation=pod.generation,
            desired=pb.DESIRED_STATE_DELETED,
            placement=pb.Placement(**pod.placement),
        )
        if pod.desired != RUNNING:
            return made
        made.desired = pb.DESIRED_STATE_RUNNING
        asked = pod.settings
        if pod.role == LEASE:
            made.lease.CopyFrom(pb.LeaseWorkload(**asked))
            return made
        found = await self.model(pod.project_id, pod.base_model)
        made.engine.CopyFrom(
            pb.EngineWorkload(
                engine=TRAINER,
                model=pod.base_model,
                model_version_id=found.model.version_id,
                model_files=[await self._signed(found, one) for one in found.manifest.files],
                gpus=asked["gpus"],
                accelerator=asked["accelerator"],
                memory_bytes=asked["memory_bytes"],
                trainer=pb.TrainerProcess(
                    role=pod.role,
                    max_rank=asked["max_rank"],
                    # Rows of the release before say nothing of it.
                    full=asked.get("full", True),
                    engine=asked["engine"],
                    processes=asked["processes"],
                    token_sha256=bytes.fromhex(pod.token_sha256),
                    lease_id=pod.lease_id,
                ),
            )
        )
        return made

    async def model(self, project_id: str, name: str) -> models_pb2.ResolvedModel:
        """The platform's model of a name; raises grpc.aio.AioRpcError."""
        request = models_pb2.ResolveModelRequest(project_id=project_id, id=name)
        return await self._models.ResolveModel(request)

    async def _signed(
        self, found: models_pb2.ResolvedModel, file: models_pb2.ManifestEntry
    ) -> models_pb2.FileUrl:
        url = await self._objects.presign_get(
            found.object_prefix + file.path, expires=self._presign_seconds
        )
        return models_pb2.FileUrl(path=file.path, url=url, bytes=file.bytes, sha256=file.sha256)
