"""Builds the specification of a request, before its model is looked up. Pure."""

import random
from dataclasses import dataclass
from typing import Any

import msgspec

from windlass import graders
from windlass.backends import methods
from windlass.core import misfits
from windlass.core.errors import InvalidArgument
from windlass.graders import Grader
from windlass.jobs.creation import document_jobs
from windlass.jobs.domain.job import Keep, Spec
from windlass.jobs_api.extension import Extension, Resources
from windlass.jobs_api.request import GRADER, CreateJob

_SEEDS = random.SystemRandom()


@dataclass(frozen=True, slots=True)
class Draft:
    """A specification before its models are resolved, with the grader of its answers."""

    spec: Spec
    grader: Grader | None


def drafted(
    request: CreateJob, *, default_backend: str, default_gpus: int = 0, runs_python: bool
) -> Draft:
    """The draft of the job that a request asks for; raises InvalidArgument that names the field."""
    beyond = request.windlass or Extension()
    backend = beyond.backend or beyond.runtime or default_backend
    if beyond.document:
        whole = document_jobs.resolved(request, beyond, backend)
        method, rewards, seed = whole.method, whole.grader, whole.seed
    else:
        method, seed = request.choose_method(), request.seed
        rewards = _grader(request.grader)
    _check_exports(beyond, method)
    grader = _checked(rewards, method=method, runs_python=runs_python)
    resources, keep = beyond.resources, beyond.checkpoints
    spec = Spec(
        model=request.model,
        model_version_id="",
        model_bytes=0,
        training_file=request.training_file,
        validation_file=request.validation_file or "",
        method=method,
        suffix=request.suffix or "",
        seed=_SEEDS.getrandbits(31) if seed is None else seed,
        hyperparameters=_given(request.given_hyperparameters),
        grader={} if grader is None else graders.to_document(grader),
        integrations=msgspec.to_builtins(request.integrations or []),
        metadata=request.metadata or {},
        backend=backend,
        extra=beyond.settings,
        resources=Resources(gpus=default_gpus) if resources is None else resources.each,
        keep=None if keep is None else Keep(last=keep.keep_last, best=keep.keep_best),
        exports=tuple(beyond.export or ()),
        document=beyond.document or {},
        schema_version=document_jobs.version_of(beyond) if beyond.document else 0,
    )
    return Draft(spec, grader)


def _grader(data: bytes) -> Any:
    if not data:
        return None
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArgument(f"{GRADER} is not valid JSON.", param=GRADER) from error


def _checked(given: Any, *, method: str, runs_python: bool) -> Grader | None:
    """The grader of the answers, where the method learns from rewards."""
    if method not in methods.GRADED:
        if given is not None:
            raise InvalidArgument(
                f"{GRADER} is only allowed with the method reinforcement.", param=GRADER
            )
        return None
    if given is None:
        raise InvalidArgument(
            f"{GRADER} is required: it computes the reward of an answer.", param=GRADER
        )
    try:
        found = graders.parse(given, at=GRADER)
    except graders.InvalidGrader as error:
        message = f"{error.field}: {misfits.words(error.message)}."
        raise InvalidArgument(message, param=error.field) from error
    if graders.programs(found) and not runs_python:
        raise InvalidArgument(
            "Python graders are disabled in this installation (graders.python).",
            param=graders.type_field(found, GRADER),
        )
    return found


def _check_exports(beyond: Extension, method: str) -> None:
    """Raises InvalidArgument for a form that what the method makes cannot have."""
    if "gguf" in (beyond.export or ()) and method in methods.SCORING:
        at = "windlass.export"
        raise InvalidArgument(
            f"{at}: a reward model cannot be exported as gguf; use merged.", param=at
        )


def _given(hyperparameters: msgspec.Struct | None) -> dict[str, Any]:
    """The fields that were given, by name."""
    if hyperparameters is None:
        return {}
    found = msgspec.structs.asdict(hyperparameters)
    return {name: value for name, value in found.items() if value not in (None, "auto")}
