"""Admission of jobs: looks up files and models, makes the plan, checks quotas."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeVar

import grpc

from windlass import graders
from windlass.api.models.v1 import models_pb2, models_pb2_grpc
from windlass.backends import (
    BackendError,
    InvalidConfig,
    LLMBackend,
    Sizing,
    get_backend,
)
from windlass.core import misfits
from windlass.core.errors import AppError, InvalidArgument, PermissionDenied, from_rpc
from windlass.core.ids import new_id
from windlass.core.objects import ObjectStore
from windlass.core.rpc.auth import Principal, current
from windlass.core.rpc.model_scope import unknown_model
from windlass.graders import Grader
from windlass.jobs.creation import document_jobs, requests
from windlass.jobs.creation.input_files import NOT_SAID, InputFiles, Inspected
from windlass.jobs.creation.spec_builder import Draft, drafted
from windlass.jobs.creation.starting import (
    Start,
    require_adapter,
    require_continuing,
    require_known_type,
    require_weights,
    start_of,
)
from windlass.jobs.domain.job import Companion, Job, Plan, Spec
from windlass.jobs.scheduling.capacity import Capacity
from windlass.jobs.scheduling.cluster_snapshot import ClusterSnapshot
from windlass.jobs.scheduling.quota_admission import (
    misfit,
    require_libraries,
    require_quota,
)
from windlass.jobs.scheduling.runtimes import OfferedRuntime, require_method, require_runtime
from windlass.jobs.tracking.trackers import Trackers
from windlass.jobs_api.query import UnsentFiles
from windlass.jobs_api.request import CreateJob
from windlass.modelfiles.naming import tuned_model_id
from windlass.modelfiles.quantization import GGUF

# Stands in for the number of examples until inspection has counted them.
NOMINAL_EXAMPLES = 1000
T = TypeVar("T")
_NOT_TUNED = {
    models_pb2.MODEL_TASK_SCORING: "a reward model",
    models_pb2.MODEL_TASK_EMBEDDING: "an embedder",
}
# What a caller's key must allow for a grader to ask models in its name.
ASKING = "inference.invoke"


class JobAdmission:
    """Answers whether a job can be made of a request, and of what."""

    def __init__(
        self,
        files: InputFiles,
        models: models_pb2_grpc.ModelsInternalServiceAsyncStub,
        objects: ObjectStore,
        capacity: Capacity,
        trackers: Trackers,
        *,
        default_backend: str,
        default_gpus: int,
        asks_models: bool,
        runs_python: bool,
    ):
        self._files = files
        self._models = models
        self._objects = objects
        self._capacity = capacity
        self._trackers = trackers
        self._default_backend = default_backend
        self._default_gpus = default_gpus
        self._asks_models = asks_models
        self._runs_python = runs_python

    async def admit(
        self,
        principal: Principal,
        asked: CreateJob,
        now: int,
        *,
        request_id: str = "",
        unsent: UnsentFiles = NOT_SAID,
    ) -> tuple[Job, Plan | None, str]:
        """Validates a request; returns a job, with its plan if its files are inspected, and why
        no cluster that lives could hold it, if none could.

        A training file that is not uploaded yet is judged by what is said of it.
        """
        project_id, began = principal.require_project(), time.monotonic()
        # Nobody else may have looked for a while.
        await self._capacity.look()
        runtime = await self._surely(lambda seen: _runtime(project_id, asked, seen), began)
        draft = await self._draft(asked)
        requests.require_size(draft.spec)
        if runtime is not None and not draft.spec.document:
            require_method(runtime, draft.spec.method)
        await self._trackers.admit(project_id, asked.integrations or ())
        judges = await self._judges(principal, draft.graders)
        start, inputs = await self._look(project_id, draft.spec, unsent)
        spec = replace(
            draft.spec,
            model_version_id=start.weights.version_id,
            model_bytes=start.weights.bytes,
            lora_targets=tuple(start.weights.preset.lora_targets),
            adapter=start.shape,
            judges=judges,
        )
        plan = make_plan(spec, inputs.examples or NOMINAL_EXAMPLES)
        backend = get_backend(spec.backend)
        await self._surely(lambda seen: require_known_type(start, backend, seen, project_id), began)
        companions = await self._companions(project_id, plan)
        spec = replace(spec, companions=start.companions + companions)
        job = Job(
            id=new_id("ftjob-"),
            organization_id=principal.organization_id,
            project_id=project_id,
            request_id=requests.request_id(request_id),
            spec=spec,
            created_at_ms=now,
            model_name=tuned_model_id(
                start.model.base_model or start.model.id,
                principal.organization_id,
                spec.suffix,
                new_id("", length=8),
            ),
        )
        planned = replace(job, plan=plan)
        await self._surely(lambda seen: require_libraries(planned, seen), began)
        await self._surely(lambda seen: require_quota(planned, seen), began)
        warning = misfit(planned, self._capacity.snapshot)
        return job, plan if inputs.examples else None, warning

    async def _surely(self, check: Callable[[ClusterSnapshot | None], T], since: float) -> T:
        """Refuses only by clusters looked at after the request came: one may have joined since."""
        try:
            return check(self._capacity.snapshot)
        except AppError:
            await self._capacity.look(since)
            return check(self._capacity.snapshot)

    async def _draft(self, asked: CreateJob) -> Draft:
        draft = partial(
            drafted,
            asked,
            default_backend=self._default_backend,
            default_gpus=self._default_gpus,
            runs_python=self._runs_python,
        )
        whole = asked.windlass and asked.windlass.document
        if asked.grader or whole or asked.evaluation:
            # A script may be long, and reading it is no work for the loop.
            return await asyncio.to_thread(draft)
        return draft()

    async def _look(
        self, project_id: str, draft: Spec, unsent: UnsentFiles
    ) -> tuple[Start, Inspected]:
        start, inputs = await asyncio.gather(
            self._start(project_id, draft.model),
            self._files.look(project_id, draft, unsent),
            return_exceptions=True,
        )
        # No file suits a model that cannot be tuned.
        if isinstance(start, BaseException):
            raise start
        if isinstance(inputs, BaseException):
            raise inputs
        return start, inputs

    async def _start(self, project_id: str, name: str) -> Start:
        found = await self._model(project_id, name, "model")
        require_weights(name, found.model, "model")
        return await start_of(name, found, self._objects)

    async def _companions(self, project_id: str, plan: Plan) -> tuple[Companion, ...]:
        """The other models of a plan as they are now, each complete weights of the project."""
        companions = []
        for role, name in plan.companions.items():
            param = f"windlass.config.{role}"
            found = await self._model(project_id, name, param)
            require_weights(name, found.model, param)
            if found.model.kind == models_pb2.MODEL_KIND_ADAPTER:
                raise InvalidArgument(
                    f"{name!r} is an adapter; a {role} must be a complete model.",
                    reason="model_not_complete",
                    param=param,
                )
            version = found.model.version_id
            companions.append(Companion(role=role, model=name, version_id=version))
        return tuple(companions)

    async def _judges(
        self, principal: Principal, given: Mapping[str, Grader]
    ) -> tuple[Companion, ...]:
        """The models that graders ask, each one that the caller may ask too."""
        asked = {
            f"{at}.{path}": (at, name)
            for at, grader in given.items()
            for path, name in graders.models_asked(grader).items()
        }
        if asked and not self._asks_models:
            at = next(at for at, _ in asked.values())
            raise InvalidArgument(
                f"{at} cannot ask a model here, since the jobs service does not know the gateway. "
                "Use graders without models, or have an operator set peers.gateway.",
                param=at,
            )
        if asked and not principal.may(ASKING):
            raise PermissionDenied(f"A grader that uses models requires the permission {ASKING}.")
        judges = []
        for param, (at, name) in asked.items():
            found = await self._model(principal.require_project(), name, param)
            version, role = found.model.version_id, param.removeprefix(f"{at}.")
            judges.append(Companion(role=role, model=name, version_id=version))
        return tuple(judges)

    async def _model(self, project_id: str, name: str, param: str) -> models_pb2.ResolvedModel:
        requests.name(name, param)
        caller = current()
        if not caller.may_use(name):
            said = unknown_model(name).message
            raise InvalidArgument(said, reason="model_not_found", param=param)
        suggest = caller.models is None and caller.may("models.read")
        request = models_pb2.ResolveModelRequest(project_id=project_id, id=name, suggest=suggest)
        try:
            found: models_pb2.ResolvedModel = await self._models.ResolveModel(request)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.NOT_FOUND:
                raise from_rpc(error) from error
            raise InvalidArgument(
                from_rpc(error).message, reason="model_not_found", param=param
            ) from error
        if what := _NOT_TUNED.get(found.model.task):
            raise InvalidArgument(
                f"{name!r} is {what}, which cannot be fine-tuned.",
                reason="model_not_tunable",
                param=param,
            )
        if found.model.quantization.method == GGUF:
            raise InvalidArgument(
                f"{name!r} is a GGUF file, which cannot be fine-tuned; import its safetensors.",
                reason="model_not_tunable",
                param=param,
            )
        return found


def _runtime(
    project_id: str, asked: CreateJob, snapshot: ClusterSnapshot | None
) -> OfferedRuntime | None:
    name = asked.windlass.runtime if asked.windlass else None
    if not name:
        return None
    return require_runtime(snapshot or ClusterSnapshot(), project_id, name)


def make_plan(spec: Spec, examples: int) -> Plan:
    """The backend's configuration for a spec; raises InvalidArgument that names the field."""
    backend = _backend(spec, examples)
    sizing = _sizing(spec, examples)
    return Plan(
        framework=backend.framework,
        schema_version=backend.schema_version,
        config=backend.to_document(),
        num_nodes=backend.num_nodes or 1,
        companions=dict(backend.companions),
        libraries=dict(backend.libraries),
        hyperparameters={}
        if spec.document
        else backend.numbers(
            method=spec.method,
            hyperparameters=spec.hyperparameters,
            sizing=sizing,
            extra=spec.extra,
        ),
    )


def _sizing(spec: Spec, examples: int) -> Sizing:
    return Sizing(
        examples=examples,
        model_bytes=max(1, spec.model_bytes),
        processes=max(1, spec.resources.processes, spec.resources.gpus),
        lora_targets=tuple(spec.lora_targets),
    )


def _backend(spec: Spec, examples: int) -> LLMBackend:
    try:
        kind = get_backend(spec.backend)
    except BackendError as error:
        raise InvalidArgument(str(error), param="windlass.backend") from error
    require_continuing(kind, spec)
    if spec.document:
        whole = document_jobs.read(spec.backend, spec.document, spec.schema_version)
        require_adapter(whole, spec)
        return whole
    try:
        return kind.from_openai(
            method=spec.method,
            hyperparameters=spec.hyperparameters,
            seed=spec.seed,
            sizing=_sizing(spec, examples),
            extra=spec.extra,
            # Backends of before know of neither.
            **({"grader": spec.grader} if spec.grader else {}),
            **({"adapter": spec.adapter} if spec.adapter else {}),
        )
    except InvalidConfig as error:
        message = f"{error.field}: {misfits.words(error.message)}"
        raise InvalidArgument(message, param=error.field) from error
