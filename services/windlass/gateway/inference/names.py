"""Names of models by project: a cache, filled on demand and invalidated by a watch of changes."""

from collections import OrderedDict
from collections.abc import AsyncIterable
from dataclasses import dataclass

from windlass.api.models.v1 import models_pb2 as pb
from windlass.api.models.v1.models_pb2_grpc import ModelsInternalServiceAsyncStub
from windlass.api.tuning.v1 import transfer_pb2
from windlass.api.tuning.v1.transfer_pb2_grpc import TransferServiceAsyncStub
from windlass.core.rpc.auth import Principal
from windlass.core.rpc.following import Follower
from windlass.core.rpc.tokens import TokenAuthority
from windlass.residency.geographies import ProjectGeographies

# Names of all projects that are remembered; each takes about 600 bytes.
REMEMBERED = 50_000
# Of a checkpoint's path, which no model's name begins with.
CHECKPOINT = "tinker://"


@dataclass(frozen=True, slots=True)
class Named:
    """The version that a name points to."""

    version_id: str
    # The version whose engine answers: an adapter's base, or its own.
    engine_version_id: str
    # A ModelTask, unspecified where a stack of others has it.
    task: int
    # Of all projects, which a project's own of the same name hides.
    is_global: bool
    # A serving stack of others has it: what that takes, only its route says.
    is_adopted: bool = False
    # An adapter with complete weights too: which engines answer, only its route says.
    is_merged: bool = False
    # Where the data of the project that asks stays; empty: anywhere.
    geography: str = ""


class NameCache:
    """Recently used names, which stay valid while the models service is unavailable."""

    def __init__(
        self,
        models: ModelsInternalServiceAsyncStub,
        geographies: ProjectGeographies,
        *,
        size: int = REMEMBERED,
    ):
        self._models = models
        self._geographies = geographies
        self._size = size
        # By name, so that a change of a global one finds every project that knows it.
        self._names: OrderedDict[str, dict[str, Named]] = OrderedDict()
        self._count = 0
        # No change up to this one is still to be heard; None before the first.
        self._revision: int | None = None
        self.follower = Follower("models", self._open, self._hear)

    def find(self, project_id: str, model: str) -> Named | None:
        """The cached version of a name; None if it is not cached."""
        projects = self._names.get(model)
        return None if projects is None else projects.get(project_id)

    async def look_up(self, project_id: str, model: str, *, suggest: bool) -> Named:
        """The name as the models service knows it; raises AioRpcError, NOT_FOUND for an unknown
        one, which names one much like it if `suggest` is set.
        """
        geography = await self._geographies.of(project_id)
        request = pb.LookupModelRequest(project_id=project_id, id=model, suggest=suggest)
        answer = await self._models.LookupModel(request)
        model_of, is_merged = answer.model.model, answer.model.is_merged
        is_adopted = model_of.kind == pb.MODEL_KIND_ADOPTED
        found = Named(
            version_id=model_of.version_id,
            engine_version_id=answer.model.engine_version_id,
            task=pb.MODEL_TASK_UNSPECIFIED if is_adopted else model_of.task,
            is_global=not model_of.project_id,
            is_adopted=is_adopted,
            is_merged=is_merged,
            geography=geography,
        )
        # A change that was heard during the look-up may not be in its answer.
        if self._revision is not None and answer.revision >= self._revision:
            self._remember(project_id, model, found)
        return found

    def _remember(self, project_id: str, model: str, found: Named) -> None:
        projects = self._names.setdefault(model, {})
        self._count += project_id not in projects
        projects[project_id] = found
        self._names.move_to_end(model)
        while self._count > self._size:
            self._count -= len(self._names.popitem(last=False)[1])

    def _open(self) -> AsyncIterable[pb.ModelsDelta]:
        request = pb.WatchModelsRequest(after=self._revision)
        return self._models.WatchModels(request, wait_for_ready=True)

    def _hear(self, delta: pb.ModelsDelta) -> None:
        self._revision = delta.revision
        for change in delta.changes:
            self._forget(change.project_id, change.name)

    def _forget(self, project_id: str, model: str) -> None:
        projects = self._names.get(model)
        if projects is None:
            return
        gone = (
            [project_id] if project_id else [key for key, one in projects.items() if one.is_global]
        )
        for key in gone:
            self._count -= projects.pop(key, None) is not None
        if not projects:
            del self._names[model]


class ServedCheckpoints:
    """The models that answer for samplers' checkpoints, which are asked for by their paths."""

    def __init__(self, transfers: TransferServiceAsyncStub, tokens: TokenAuthority):
        self._transfers = transfers
        self._tokens = tokens

    async def model_of(self, caller: Principal, name: str) -> str:
        """Returns the model that answers for a path; any other name is one itself.

        Asks each time, since a checkpoint may be taken back. Raises AioRpcError, NOT_FOUND for one
        that the caller's project may not read.
        """
        if not name.startswith(CHECKPOINT):
            return name
        found = await self._transfers.ServeCheckpoint(
            transfer_pb2.ServeCheckpointRequest(path=name),
            metadata=[("windlass-principal", self._tokens.sign_principal(caller))],
        )
        return found.model_id
