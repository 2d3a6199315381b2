"""The tenant-facing servicer of models."""

from collections.abc import Sequence
from typing import Any

from windlass.api.inference.v1 import inference_pb2
from windlass.api.inference.v1.inference_pb2_grpc import InferenceInternalServiceAsyncStub
from windlass.api.jobs.v1 import jobs_pb2
from windlass.api.jobs.v1.jobs_pb2_grpc import JobsInternalServiceAsyncStub
from windlass.api.models.v1 import models_pb2 as pb
from windlass.api.models.v1 import models_pb2_grpc as rpc
from windlass.core.clock import now_seconds
from windlass.core.db.paging import cut, page_size
from windlass.core.db.wake import Wake
from windlass.core.errors import NotFound, PermissionDenied
from windlass.core.ids import new_id, new_name
from windlass.core.rpc.auth import Principal, current
from windlass.models import messages
from windlass.models.artifacts import Artifacts
from windlass.models.domain import (
    Import,
    Kind,
    Version,
    VersionState,
    import_name,
    require_global,
    version_prefix,
)
from windlass.models.fetches.requests import FetchRequests
from windlass.models.grants.checks import GrantChecks
from windlass.models.imports import ImportStore
from windlass.models.listing import ModelList
from windlass.models.manifest import check_import
from windlass.models.store import ModelStore, in_use, name_taken

# Time to finish an upload that began just before its URL expired, and to complete.
IMPORT_GRACE_SECONDS = 3600
# Of users, in the refusal of a deletion.
NAMED = 5
# Of checkpoints that a deleted model leaves.
MAX_LEFT = 100
# The longest names make a page of half a mebibyte.
MODELS_PAGE = 500


class Uses:
    """Jobs and engines that use a version."""

    def __init__(
        self, jobs: JobsInternalServiceAsyncStub, engines: InferenceInternalServiceAsyncStub
    ):
        self._jobs = jobs
        self._engines = engines

    async def of(self, version: Version, project_id: str) -> str:
        """A description of the model's users, naming a project's own; empty for none."""
        jobs = await self._jobs.FindUses(jobs_pb2.FindUsesRequest(model_version_id=version.id))
        if jobs.job_ids:
            asking = list(zip(jobs.project_ids, jobs.job_ids, strict=True))
            return described("running job", asking, project_id)
        engines = await self._find(version)
        if engines.serving_models:
            return "its serving, which `windlass models deactivate` ends"
        drafted = list(zip(engines.drafted_projects, engines.drafted_models, strict=True))
        if drafted:
            return f"{described('serving', drafted, project_id)}, as the draft model"
        return _engines(engines, version, project_id)

    async def engines_of(self, version: Version, project_id: str) -> str:
        """A description of the engines that run it, whether or not a serving keeps them."""
        return _engines(await self._find(version), version, project_id)

    async def _find(self, version: Version) -> inference_pb2.FindUsesResponse:
        request = inference_pb2.FindUsesRequest(model_version_id=version.id)
        return await self._engines.FindUses(request)


def _engines(found: inference_pb2.FindUsesResponse, version: Version, project_id: str) -> str:
    running = [(version.project_id, engine_id) for engine_id in found.engine_ids]
    return described("engine", running, project_id)


def described(what: str, users: Sequence[tuple[str, str]], project_id: str) -> str:
    """The number of users, which are given by project and name, and the names of a project's own.

    Empty for none; another project's are nobody's business.
    """
    if not users:
        return ""
    number = f"{len(users)} {what}" + ("s" if len(users) > 1 else "")
    own = [name for owner, name in users if owner == project_id]
    named = ", ".join(own[:NAMED]) + (", \N{HORIZONTAL ELLIPSIS}" if len(own) > NAMED else "")
    others = "of other projects" if len(own) < len(users) and not own else ""
    return f"{number} {others}".rstrip() + (f" ({named})" if named else "")


class ModelsServicer(rpc.ModelsServiceServicer):
    """ModelsService."""

    def __init__(
        self,
        models: ModelStore,
        listing: ModelList,
        imports: ImportStore,
        artifacts: Artifacts,
        uses: Uses,
        granting: GrantChecks,
        fetching: FetchRequests,
        wake: Wake,
    ):
        self._models = models
        self._listing = listing
        self._granting = granting
        self._fetching = fetching
        self._imports = imports
        self._artifacts = artifacts
        self._uses = uses
        self._wake = wake

    async def CreateImport(self, request: pb.CreateImportRequest, context: Any) -> pb.Import:
        """Promises a model; what is there already, byte for byte, needs no upload."""
        principal = _importer(request.is_global)
        name = import_name(request.id)
        principal.require_model(name, "id")
        manifest = messages.manifest_of(request.manifest)
        check_import(manifest)
        existing = await self._existing(principal, name, is_global=request.is_global)
        if existing is not None and existing.manifest.digest != manifest.digest:
            raise name_taken(name)
        version_id = existing.id if existing else new_name("mv-")
        owner = "" if request.is_global else principal.project_id
        import_ = Import(
            id=new_id("import-"),
            organization_id=principal.organization_id,
            project_id=principal.project_id,
            name=name,
            is_global=request.is_global,
            manifest=manifest,
            version_id=version_id,
            state="complete" if existing else "open",
            expires_at=now_seconds() + self._artifacts.presign_seconds + IMPORT_GRACE_SECONDS,
            object_prefix=version_prefix(version_id, project_id=owner),
        )
        await self._imports.create(import_)
        if existing:
            return pb.Import(import_id=import_.id)
        return pb.Import(
            import_id=import_.id,
            uploads=await self._artifacts.upload_urls(import_.object_prefix, manifest),
        )

    async def CompleteImport(self, request: pb.CompleteImportRequest, context: Any) -> pb.Model:
        """Verifies every byte, then points the name to the version."""
        principal = current()
        import_ = await self._imports.get(principal, request.import_id)
        _importer(import_.is_global)
        principal.require_model(import_.name, "import_id")
        if import_.state == "open":
            found = await self._artifacts.verify_import(import_)
            version = Version(
                id=import_.version_id,
                organization_id=import_.organization_id,
                project_id="" if import_.is_global else import_.project_id,
                name=import_.name,
                kind=Kind.BASE,
                manifest=import_.manifest,
                object_prefix=import_.object_prefix,
                task=found.task,
                model_type=found.model_type,
                footprint=found.footprint,
                quantization=found.quantization,
                formats=found.formats,
                preset=found.preset,
                created_at=now_seconds(),
            )
            await self._imports.complete(import_, version)
            self._wake.touch("models")
        done = await self._models.version(import_.version_id)
        if done.state is not VersionState.READY:
            raise NotFound("The model was deleted meanwhile.", reason="model_not_found")
        return messages.model(done)

    async def CreateFetch(self, request: pb.CreateFetchRequest, context: Any) -> pb.Fetch:
        """Has a repository of the hub fetched as a base model."""
        return await self._fetching.create(request)

    async def GetFetch(self, request: pb.GetFetchRequest, context: Any) -> pb.Fetch:
        """The progress of a fetch."""
        return await self._fetching.get(request)

    async def ListFetches(
        self, request: pb.ListFetchesRequest, context: Any
    ) -> pb.ListFetchesResponse:
        """The project's fetches."""
        return await self._fetching.list(request)

    async def CancelFetch(self, request: pb.CancelFetchRequest, context: Any) -> pb.Fetch:
        """Ends a fetch and removes what it brought."""
        return await self._fetching.cancel(request)

    async def ListModels(
        self, request: pb.ListModelsRequest, context: Any
    ) -> pb.ListModelsResponse:
        """The project's models and the global ones that it does not hide."""
        size = page_size(request.limit, default=MODELS_PAGE, max_limit=MODELS_PAGE)
        found = await self._listing.page(
            current().require_project(),
            scope=current().models,
            after=request.after,
            limit=size + 1,
            kinds=[messages.kind_of(kind) for kind in request.kinds],
            is_checkpoint=request.is_checkpoint if request.HasField("is_checkpoint") else None,
        )
        page, more = cut(found, size)
        return pb.ListModelsResponse(models=map(messages.model, page), has_more=more)

    async def GetModel(self, request: pb.GetModelRequest, context: Any) -> pb.Model:
        """Returns one model that the project sees."""
        return messages.model(await self._known(current().require_project(), request.id))

    async def DeleteModel(
        self, request: pb.DeleteModelRequest, context: Any
    ) -> pb.DeleteModelResponse:
        """Removes a name that nothing uses; its artifacts follow."""
        principal = current()
        version = await self._known(principal.project_id, request.id)
        if not version.project_id:
            require_global(principal.may("platform.write"))
        elif version.project_id != principal.project_id:
            raise PermissionDenied(
                "The model belongs to another project, and only that project may delete it."
            )
        await require_unused(self._models, self._uses, version, principal.project_id)
        await self._models.delete(version)
        self._wake.touch("models")
        if not version.job_id:
            return pb.DeleteModelResponse()
        left = await self._listing.checkpoints(version, limit=MAX_LEFT)
        return pb.DeleteModelResponse(checkpoints=left)

    async def CreateGrants(
        self, request: pb.CreateGrantsRequest, context: Any
    ) -> pb.CreateGrantsResponse:
        """Lets other projects of the organization use what a job made."""
        return await self._granting.create(request)

    async def ListGrants(
        self, request: pb.ListGrantsRequest, context: Any
    ) -> pb.ListGrantsResponse:
        """Lists the projects that may use it."""
        return await self._granting.list(request)

    async def DeleteGrant(
        self, request: pb.DeleteGrantRequest, context: Any
    ) -> pb.DeleteGrantResponse:
        """Takes the use away again."""
        return await self._granting.delete(request)

    async def _known(self, project_id: str, name: str) -> Version:
        current().require_model(name)
        try:
            return await self._models.resolve(project_id, name)
        except NotFound as error:
            if current().models is not None:
                # It may resemble one that the caller is not told of.
                raise
            error.message += await self._listing.suggestion(project_id, name)
            raise

    async def _existing(
        self, principal: Principal, name: str, *, is_global: bool
    ) -> Version | None:
        project = "" if is_global else principal.project_id
        try:
            found = await self._models.resolve(project, name)
        except NotFound:
            return None
        return found if found.project_id == project else None


async def require_unused(models: ModelStore, uses: Uses, version: Version, project_id: str) -> None:
    """Raises FailedPrecondition `model_in_use` while something needs the version.

    It names what of the project does.
    """
    trained = await models.dependants(version.id)
    if trained:
        raise in_use(described("adapter", trained, project_id))
    if users := await uses.of(version, project_id):
        raise in_use(users)
    for adapter in await models.copied(version.id):
        if engines := await uses.engines_of(adapter, project_id):
            raise in_use(f"{engines}, where it answers for {adapter.name}")


def _importer(is_global: bool) -> Principal:
    principal = current()
    if is_global:
        require_global(principal.may("platform.write"))
    else:
        principal.require_project()
    return principal
