"""Requests that wish for prefetches, and show them."""

from collections.abc import Sequence

from windlass.api.inference.v1 import inference_pb2 as pb
from windlass.api.models.v1 import models_pb2
from windlass.api.models.v1.models_pb2_grpc import ModelsInternalServiceAsyncStub
from windlass.bounds import MAX_CLUSTERS
from windlass.core.db.paging import cut, fitting, page_size
from windlass.core.db.wake import Wake
from windlass.core.errors import FailedPrecondition, InvalidArgument, PermissionDenied
from windlass.core.ids import new_name
from windlass.core.rpc import audited
from windlass.core.rpc.auth import Principal, current
from windlass.inference.domain import NOTHING, View
from windlass.inference.observed_state import ObservedState
from windlass.inference.prefetches.prefetch import Prefetch, shown
from windlass.inference.prefetches.store import PrefetchStore
from windlass.inference.servings.checks import require_own_engines
from windlass.inference.servings.store import ServingStore


class PrefetchRequests:
    """The part of InferenceService that is about prefetches."""

    def __init__(
        self,
        prefetches: PrefetchStore,
        servings: ServingStore,
        observed: ObservedState,
        models: ModelsInternalServiceAsyncStub,
        wake: Wake,
    ):
        self._prefetches = prefetches
        self._servings = servings
        self._observed = observed
        self._models = models
        self._wake = wake

    async def put(self, request: pb.PutPrefetchRequest) -> pb.PutPrefetchResponse:
        """Notes the wish; what follows from it can be looked at."""
        principal = current()
        asked = list(dict.fromkeys(request.cluster_ids))
        if len(asked) > MAX_CLUSTERS:
            raise InvalidArgument(f"cluster_ids must be at most {MAX_CLUSTERS}.", param="clusters")
        project = principal.require_project()
        principal.require_model(request.model)
        resolved = await self._models.ResolveModel(
            models_pb2.ResolveModelRequest(project_id=project, id=request.model)
        )
        _require_weights(principal, resolved)
        # A cluster may have come since the last poll.
        await self._observed.refresh_clusters()
        view = await self._observed.known_view(NOTHING)
        owner = resolved.model.project_id
        draft = await self._draft(resolved.model)
        size = sum(file.bytes for file in resolved.manifest.files)
        wished = [
            Prefetch(
                id=new_name("pre-"),
                organization_id=principal.organization_id,
                project_id=project,
                owner_id=owner,
                model=resolved.model.id,
                version_id=resolved.model.version_id,
                cluster_id=cluster_id,
                bytes=size + draft.bytes,
                draft_version_id=draft.version_id,
            )
            for cluster_id in _chosen(view, asked, owner)
        ]
        made = await self._prefetches.put(wished, cut=not asked)
        audited.also([request.model, *(one.cluster_id for one in made)])
        self._wake.touch("inference")
        return pb.PutPrefetchResponse(prefetches=[_message(one, view) for one in made])

    async def _draft(self, model: models_pb2.Model) -> models_pb2.Model:
        """The model that guesses for a model's engines; an empty one for none."""
        version_id = await self._servings.draft_of(model.project_id, model.id)
        if not version_id:
            return models_pb2.Model()
        request = models_pb2.LookupVersionsRequest(version_ids=[version_id])
        found = (await self._models.LookupVersions(request)).models
        return found[0].model if found else models_pb2.Model()

    async def list(self, request: pb.ListPrefetchesRequest) -> pb.ListPrefetchesResponse:
        """The project's, newest first."""
        size = page_size(request.limit)
        rows = await self._prefetches.newest(current(), after=request.after, limit=size + 1)
        view = await self._observed.known_view(NOTHING)
        page, more = cut(rows, size)
        found, more = fitting([_message(one, view) for one in page], more)
        return pb.ListPrefetchesResponse(prefetches=found, has_more=more)


def _message(prefetch: Prefetch, view: View) -> pb.Prefetch:
    if prefetch.is_open and prefetch.cluster_id not in view.clusters:
        made = shown(prefetch, None)
        made.message = "The cluster is not connected."
        return made
    return shown(prefetch, view.statuses.get(prefetch.id))


def _require_weights(principal: Principal, resolved: models_pb2.ResolvedModel) -> None:
    """Raises PermissionDenied for another's model, InvalidArgument for one without weights."""
    model = resolved.model
    operates = not model.project_id and principal.may("platform.write")
    if model.project_id != principal.project_id and not operates:
        raise PermissionDenied(
            "The model belongs to another project, or to everyone; its project, or a platform "
            "administrator, can have it prefetched.",
            param="model",
        )
    require_own_engines(model)
    if resolved.HasField("base"):
        raise InvalidArgument(
            f"{model.id} is an adapter, which engines load within seconds; prefetch its base, "
            f"{resolved.base.model.id}.",
            param="model",
        )


def _chosen(view: View, asked: Sequence[str], owner_id: str) -> list[str]:
    """The clusters that are to have the files; raises FailedPrecondition for one that cannot."""
    if not asked:
        every = sorted(view.clusters)
        if fitting_ones := [one for one in every if not _objection(view, one, owner_id)]:
            return fitting_ones[:MAX_CLUSTERS]
        raise FailedPrecondition(
            "No cluster that is connected runs engines of the model and keeps models.",
            reason="models_not_kept",
            param="clusters",
        )
    for cluster_id in asked:
        if said := _objection(view, cluster_id, owner_id):
            raise FailedPrecondition(said, reason="models_not_kept", param="clusters")
    return list(asked)


def _objection(view: View, cluster_id: str, owner_id: str) -> str:
    """Returns why a cluster cannot have the files of a project's model; empty if it can."""
    cluster = view.clusters.get(cluster_id)
    if cluster is None:
        return f"The cluster {cluster_id[:64]} is not connected."
    if not view.permits(cluster_id, owner_id):
        return f"The cluster {cluster.name} runs no engines of the model's project."
    if not view.has_place(cluster_id, owner_id):
        return f"The project's namespace in the cluster {cluster.name} is not set up yet."
    if not cluster.capacity.keeps_models:
        return (
            f"The cluster {cluster.name} keeps no models: its operator has set no claim for them "
            "(engines.weights)."
        )
    return ""
