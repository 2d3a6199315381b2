"""Checks of a run that is to train an engine in place, before anything is written."""

from typing import Any

import grpc

from windlass.api.inference.v1 import inference_pb2 as pb
from windlass.api.inference.v1.inference_pb2_grpc import InferenceInternalServiceAsyncStub
from windlass.core.errors import (
    AppError,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    from_rpc,
)
from windlass.core.rpc.auth import Principal
from windlass.tuning.domain import (
    CLUSTER,
    EXCLUSIVE,
    FULL,
    IN_ENGINE,
    PROCESSES,
    REPLICAS,
    RESOURCES,
    in_engine,
    unknown_base_model,
)

PERMISSION = "engines.train"
# What is said of trainers, of which such a run has none.
_OF_TRAINERS = (EXCLUSIVE, FULL, PROCESSES, REPLICAS, CLUSTER, RESOURCES)


class EngineRuns:
    """Judges runs in engines, and takes their engines for them."""

    def __init__(self, inference: InferenceInternalServiceAsyncStub | None):
        """`inference` is None where nobody says where that service is."""
        self._inference = inference

    async def begin(
        self, caller: Principal, base_model: str, run_id: str, metadata: dict[str, Any]
    ) -> None:
        """Holds the engine of a model for a run that is about to be written.

        Raises PermissionDenied, InvalidArgument `unknown_base_model` for what is not the project's
        own, and FailedPrecondition.
        """
        require_permission(caller)
        for name in _OF_TRAINERS:
            if name in metadata:
                raise InvalidArgument(
                    f"{name} is about trainers, and a run with {IN_ENGINE} has none.",
                    param="user_metadata",
                )
        if self._inference is None:
            raise FailedPrecondition(
                "Nothing here trains engines: this server does not know the inference service.",
                reason="engines_not_offered",
                param="user_metadata",
            )
        caller.require_model(base_model, "base_model")
        request = pb.HoldEngineRequest(
            project_id=caller.require_project(), model=base_model, run_id=run_id
        )
        try:
            await self._inference.HoldEngine(request)
        except grpc.aio.AioRpcError as error:
            refusal: AppError = from_rpc(error)
            if isinstance(refusal, NotFound):
                raise unknown_base_model(base_model) from error
            if isinstance(refusal, FailedPrecondition):
                refusal = FailedPrecondition(
                    refusal.message, reason=refusal.reason, param="base_model"
                )
            raise refusal from error


def may_train_engines(caller: Principal) -> bool:
    """True for a caller who may train engines."""
    return caller.may(PERMISSION)


def require_permission(caller: Principal) -> None:
    """Raises PermissionDenied for a caller who may not train engines."""
    if not may_train_engines(caller):
        raise PermissionDenied(f"{IN_ENGINE} needs the permission {PERMISSION}.")


def require_trained_by_trainer(metadata: dict[str, Any], what: str) -> None:
    """Raises FailedPrecondition for what a run in an engine does not have."""
    if in_engine(metadata):
        raise FailedPrecondition(
            f"A run with {IN_ENGINE} has no {what}: what it learned is in its engine alone.",
            reason="not_in_engine",
        )
