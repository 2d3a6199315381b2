"""Engines as workloads, with fresh URLs of everything that they need."""

from collections.abc import Mapping, Sequence

from windlass.api.clusters.v1 import clusters_pb2
from windlass.api.models.v1 import models_pb2
from windlass.api.models.v1.models_pb2_grpc import ModelsInternalServiceAsyncStub
from windlass.bounds import NORMAL_PRIORITY
from windlass.core.errors import NotFound
from windlass.core.objects import ObjectStore
from windlass.engine_arguments import to_message
from windlass.inference.domain import DELETED, Engine, Name, View
from windlass.inference.followed_runs import FollowedRuns
from windlass.inference.observed_state import OWNER
from windlass.inference.stacks.requests import to_workload
from windlass.inference.stacks.stack import Stack


class Workloads:
    """Makes workloads; asks models where files lie, and signs their URLs."""

    def __init__(
        self,
        models: ModelsInternalServiceAsyncStub,
        objects: ObjectStore,
        followed: FollowedRuns,
        *,
        presign_seconds: int,
        max_adapters: int,
    ):
        self._followed = followed
        self._models = models
        self._objects = objects
        self._presign_seconds = presign_seconds
        self._max_adapters = max_adapters

    async def make(
        self, engine: Engine, view: View, stacks: Mapping[str, Stack]
    ) -> clusters_pb2.Workload:
        """The workload of an engine's present generation; raises NotFound for no such stack."""
        workload = clusters_pb2.Workload(
            id=engine.id,
            kind=clusters_pb2.WORKLOAD_KIND_LONG_RUNNING,
            owner=OWNER,
            organization_id=engine.organization_id,
            project_id=engine.project_id,
            cluster_id=engine.cluster_id,
            generation=engine.generation,
            desired=clusters_pb2.DESIRED_STATE_DELETED,
        )
        # Also of one that ends: its namespace is in use until its requests have ended.
        place(workload, view, engine.project_id)
        if engine.desired == DELETED:
            return workload
        workload.desired = clusters_pb2.DESIRED_STATE_RUNNING
        if engine.is_adopted:
            workload.engine.CopyFrom(_adopted(engine, view, stacks))
            return workload
        complete = _complete(await self.resolve(engine.project_id, engine.model), engine)
        workload.engine.CopyFrom(
            clusters_pb2.EngineWorkload(
                engine=engine.engine,
                # An engine of a merged copy answers by the adapter's name.
                model=complete.model.id if engine.is_dedicated else engine.model,
                model_version_id=complete.model.version_id,
                model_files=await self.files(complete),
                adapters=[
                    clusters_pb2.AdapterSpec(
                        id=name.model,
                        version_id=name.version_id,
                        files=await self.files(await self.resolve(name.project_id, name.model)),
                        project_id=name.project_id,
                    )
                    for name in _adapters(engine, view)
                ],
                max_adapters=1 if engine.is_dedicated else self._max_adapters,
                arguments=to_message(engine.arguments),
                gpus=engine.gpus,
                nodes=engine.nodes,
                accelerator=engine.accelerator,
                memory_bytes=engine.memory_bytes,
                # Of the usual one nothing is said, as before there were others.
                priority="" if engine.priority == NORMAL_PRIORITY else engine.priority,
                draft_version_id=engine.draft_version_id,
                draft_files=await self.draft_files(engine.draft_version_id),
                sleeps=engine.sleeps,
                asleep=engine.asleep,
                training=engine.training,
                dedicated=engine.is_dedicated,
                followed=await self._followed.versions(engine),
            )
        )
        return workload

    async def draft_files(self, version_id: str) -> Sequence[models_pb2.FileUrl]:
        """The files of a draft, none for an empty id; raises NotFound for one that is gone."""
        if not version_id:
            return ()
        request = models_pb2.LookupVersionsRequest(version_ids=[version_id])
        found = (await self._models.LookupVersions(request)).models
        if not found:
            raise NotFound("The draft model was deleted.", reason="model_not_found")
        return await self.files(await self.resolve(found[0].model.project_id, found[0].model.id))

    async def resolve(self, project_id: str, model: str) -> models_pb2.ResolvedModel:
        """The version that a name means to a project."""
        request = models_pb2.ResolveModelRequest(project_id=project_id, id=model)
        return await self._models.ResolveModel(request)

    async def files(
        self, resolved: models_pb2.ResolvedModel | models_pb2.ResolvedBase
    ) -> Sequence[models_pb2.FileUrl]:
        """The files of a version, with URLs that are good for a while."""
        return [
            models_pb2.FileUrl(
                path=file.path,
                url=await self._objects.presign_get(
                    resolved.object_prefix + file.path, expires=self._presign_seconds
                ),
                bytes=file.bytes,
                sha256=file.sha256,
            )
            for file in resolved.manifest.files
        ]


def place(workload: clusters_pb2.Workload, view: View, project_id: str) -> None:
    """Puts a workload where a project's engines run in its cluster."""
    if found := view.assignment(workload.cluster_id, project_id):
        workload.placement.CopyFrom(
            clusters_pb2.Placement(
                namespace=found.namespace,
                queue=found.local_queue,
                priority_class=found.priority_class,
                node_selector=found.node_selector,
            )
        )


def _complete(
    resolved: models_pb2.ResolvedModel, engine: Engine
) -> models_pb2.ResolvedModel | models_pb2.ResolvedBase:
    """The complete weights that an engine runs; raises NotFound for a copy that is gone."""
    if not resolved.HasField("base"):
        return resolved
    if engine.is_dedicated:
        return resolved.base
    if not resolved.HasField("merged"):
        raise NotFound(f"{engine.model} has no merged copy any more.", reason="model_not_found")
    return resolved.merged


def _adopted(
    engine: Engine, view: View, stacks: Mapping[str, Stack]
) -> clusters_pb2.EngineWorkload:
    name = view.names.get(engine.version_id)
    if name is None or (stack := stacks.get(name.stack)) is None:
        raise NotFound("The serving stack of the model is gone.", reason="stack_not_found")
    return clusters_pb2.EngineWorkload(
        engine=engine.engine,
        model=engine.model,
        model_version_id=engine.version_id,
        stack=to_workload(stack, name.upstream),
    )


def _adapters(engine: Engine, view: View) -> list[Name]:
    return [view.names[version] for version in engine.adapters if version in view.names]
