"""The specification that a request stands for, before anybody has looked at its model. Pure."""

import random

import msgspec

from windlass.api.jobs.v1 import jobs_pb2 as pb
from windlass.jobs import configured, requests
from windlass.jobs.domain import Spec
from windlass.jobs.requests import Windlass

_SEEDS = random.SystemRandom()


def drafted(request: pb.CreateJobRequest, beyond: Windlass, *, runs_python: bool) -> Spec:
    """Every field of a request, checked; raises InvalidArgument that names the one at fault.

    Its model's version, and that of the models beside it, are yet to be found.
    """
    request = configured.resolved(request, beyond)
    # A document's method is one of ours as well as of OpenAI's.
    method = request.method if beyond.document else requests.method(request.method, beyond.method)
    requests.check_exports(beyond.exports, method=method)
    validation = request.validation_file
    seed = request.seed if request.HasField("seed") else _SEEDS.getrandbits(31)
    return Spec(
        model=requests.name(request.model, "model"),
        model_version_id="",
        model_bytes=0,
        training_file=requests.name(request.training_file, "training_file"),
        validation_file=requests.name(validation, "validation_file") if validation else "",
        method=method,
        suffix=requests.suffix(request.suffix),
        seed=requests.seed(seed),
        hyperparameters=requests.document(request.hyperparameters, "hyperparameters"),
        grader=requests.grader(request.grader, method=method, runs_python=runs_python),
        integrations=msgspec.to_builtins(requests.integrations(request.integrations)),
        metadata=requests.metadata(request.metadata),
        backend=beyond.backend,
        extra=beyond.config,
        resources=beyond.resources,
        keep=beyond.keep,
        exports=beyond.exports,
        document=beyond.document,
        schema_version=beyond.schema_version if beyond.document else 0,
    )
