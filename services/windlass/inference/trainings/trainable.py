"""Servings whose engines may be trained: of a project's own models alone."""

from windlass.api.models.v1 import models_pb2
from windlass.api.models.v1.models_pb2_grpc import ModelsInternalServiceAsyncStub
from windlass.core.errors import FailedPrecondition, NotFound, PermissionDenied
from windlass.core.rpc.auth import current
from windlass.inference.domain import Serving
from windlass.inference.servings.store import ServingStore


class TrainableServings:
    """Finds them by the names of models."""

    def __init__(self, servings: ServingStore, models: ModelsInternalServiceAsyncStub):
        self._servings = servings
        self._models = models

    async def of_caller(self, model: str) -> Serving:
        """The serving of a model of the caller's.

        Raises NotFound, PermissionDenied for a model of others, FailedPrecondition
        `training_not_enabled`.
        """
        caller = current()
        caller.require_model(model)
        project = caller.require_project()
        resolved = await self._resolved(project, model)
        _require_own(project, resolved)
        return await self._found(project, model, resolved)

    async def of_project(self, project_id: str, model: str) -> Serving:
        """The serving of a project's own model.

        Raises NotFound for what is not its own alone, FailedPrecondition `training_not_enabled`.
        """
        resolved = await self._resolved(project_id, model)
        if resolved.model.project_id != project_id or resolved.is_granted:
            raise NotFound(f"No such model: {model[:256]!r}.", reason="model_not_found")
        return await self._found(project_id, model, resolved)

    async def _resolved(self, project_id: str, model: str) -> models_pb2.ResolvedModel:
        request = models_pb2.ResolveModelRequest(project_id=project_id, id=model)
        return await self._models.ResolveModel(request)

    async def _found(
        self, project_id: str, model: str, resolved: models_pb2.ResolvedModel
    ) -> Serving:
        found = resolved.model
        serving = await self._servings.find(project_id, found.id)
        if serving is None or not serving.training or serving.version_id != found.version_id:
            raise FailedPrecondition(
                f"The engine of {model!r} may not be trained; `windlass models activate {model} "
                "--training hogwild` has one that may.",
                reason="training_not_enabled",
                param="model",
            )
        return serving


def _require_own(project_id: str, resolved: models_pb2.ResolvedModel) -> None:
    """Raises PermissionDenied for a model that other projects own or may use."""
    if resolved.is_granted and resolved.model.project_id == project_id:
        raise PermissionDenied(
            "Other projects may use the model, and would get what its engine learns: take their "
            "permissions back first.",
            param="model",
        )
    if resolved.model.project_id != project_id:
        raise PermissionDenied(
            "Only the engines of a project's own models may be trained: what they learn, everybody "
            "gets whom they answer.",
            param="model",
        )
