"""Builds the specification of a request, before its model is looked up. Pure."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from windlass import graders
from windlass.backends import methods
from windlass.core.errors import InvalidArgument
from windlass.graders import Grader
from windlass.jobs.creation import document_jobs
from windlass.jobs.creation.grading import (
    decoded_grader,
    evaluating,
    evaluation_of,
    parsed_grader,
)
from windlass.jobs.domain.job import Keep, Spec
from windlass.jobs_api.extension import Extension, Resources
from windlass.jobs_api.request import EVALUATION, GRADER, CreateJob

_SEEDS = random.SystemRandom()


@dataclass(frozen=True, slots=True)
class Draft:
    """A specification before its models are resolved; graders by the field that names them."""

    spec: Spec
    graders: Mapping[str, Grader]


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
        rewards = decoded_grader(request.grader, at=GRADER)
    _check_exports(beyond, method)
    grader = _rewarding(rewards, method=method, runs_python=runs_python)
    judging = evaluating(beyond.evaluation, method=method, runs_python=runs_python)
    given = {GRADER: grader, f"{EVALUATION}.grader": judging}
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
        evaluation=evaluation_of(beyond.evaluation, judging or grader),
    )
    return Draft(spec, {at: one for at, one in given.items() if one is not None})


def _rewarding(given: Any, *, method: str, runs_python: bool) -> Grader | None:
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
    return parsed_grader(given, at=GRADER, runs_python=runs_python)


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
