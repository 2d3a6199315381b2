"""Jobs whose configuration comes whole: a backend's document in place of OpenAI's fields."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import UNSET

from windlass.backends import BackendError, InvalidConfig, LLMBackend, get_backend, methods
from windlass.core import misfits
from windlass.core.errors import InvalidArgument
from windlass.jobs_api.extension import Extension
from windlass.jobs_api.request import CreateJob

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
        raise InvalidArgument(f"{field}: {misfits.words(error.message)}.", param=field) from error


@dataclass(frozen=True, slots=True)
class Whole:
    """Method, grader and seed of a job's document."""

    method: str
    grader: Mapping[str, Any] | None
    seed: int | None


def version_of(beyond: Extension) -> int:
    """The version of the document's schema."""
    return 1 if beyond.schema_version is UNSET else beyond.schema_version


def resolved(request: CreateJob, beyond: Extension, backend: str) -> Whole:
    """The parts of a document that a request says in other fields.

    Raises InvalidArgument for a document that is not sound, and for fields beside it.
    """
    document = beyond.document or {}
    seed = document.get("seed")
    if request.seed is not None and request.seed != seed:
        raise InvalidArgument(f"set {AT}.seed instead of seed.", param="seed")
    config = read(backend, document, version_of(beyond))
    # A document's method is one of ours as well as of OpenAI's.
    if config.job_method not in methods.READS:
        raise InvalidArgument(
            f"{AT}: the backend {backend!r} does not train by a method of fine-tuning jobs.",
            param=AT,
        )
    return Whole(config.job_method, config.grader, seed if isinstance(seed, int) else None)
