"""Jobs whose configuration comes whole: a backend's document in place of OpenAI's fields."""

import json
from typing import Any

from windlass.api.jobs.v1 import jobs_pb2 as pb
from windlass.backends import BackendError, InvalidConfig, LLMBackend, get_backend, methods
from windlass.core.errors import InvalidArgument
from windlass.jobs import requests
from windlass.jobs.requests import Windlass

AT = "windlass.document"
Document = dict[str, Any]


def read(backend: str, document: Document, schema_version: int) -> LLMBackend:
    """The configuration that a document stands for; raises InvalidArgument."""
    try:
        config = get_backend(backend).from_document(document, schema_version)
        # A document may be well formed, and still nothing that can be trained.
        config.to_document()
        return config
    except BackendError as error:
        raise InvalidArgument(str(error), param="windlass.backend") from error
    except InvalidConfig as error:
        field = error.field
        if field == "schema_version":
            field = f"windlass.{field}"
        elif not field.startswith(("windlass.", "method.")):
            field = f"{AT}.{field}" if field else AT
        raise InvalidArgument(f"{field}: {error.message}.", param=field) from error


def resolved(request: pb.CreateJobRequest, beyond: Windlass) -> pb.CreateJobRequest:
    """The request with what its document says of method, seed and grader.

    Raises InvalidArgument for a document that is not sound, and for fields beside it.
    """
    if not beyond.document:
        return request
    if request.method or requests.document(request.hyperparameters, "hyperparameters"):
        raise InvalidArgument(f"method and {AT} cannot both be given.", param="method")
    if request.HasField("seed") and request.seed != beyond.document.get("seed"):
        raise InvalidArgument(f"seed is {AT}.seed here.", param="seed")
    config = read(beyond.backend, beyond.document, beyond.schema_version)
    found = pb.CreateJobRequest()
    found.CopyFrom(request)
    if config.job_method not in methods.READS:
        raise InvalidArgument(
            f"{AT}: the backend {beyond.backend!r} trains by no method that jobs have.", param=AT
        )
    found.method = config.job_method
    found.grader = json.dumps(dict(config.grader)).encode() if config.grader else b""
    if isinstance(seed := beyond.document.get("seed"), int):
        found.seed = seed
    return found
