"""Errors of exchanges with engines, as clients read them."""

from windlass.gateway.errors import HttpError
from windlass.gateway.inference.engines.connection import EngineBroken, EngineSilent

# The code of what an engine has begun, or might have, and does not end.
ENGINE_FAILED = "engine_failed"


class NoAnswer(HttpError):
    """No engine of a model accepted the request; a retry may succeed."""

    def __init__(self, *, broke_off: bool = False) -> None:
        """`broke_off` if an engine that had the request ended, perhaps because of it."""
        super().__init__(
            503,
            "No engine of this model is responding; try again.",
            kind="service_unavailable_error",
            code="model_not_ready",
            param="model",
            headers={"retry-after": "1"},
        )
        self.broke_off = broke_off


def failed(error: EngineBroken) -> HttpError:
    """Returns the error of an answer that an engine began, or might have."""
    silent = isinstance(error, EngineSilent)
    return engine_failed("did not go on" if silent else "broke off its answer")


def engine_failed(how: str) -> HttpError:
    """Returns the error of an engine that took a request and did not answer it."""
    return HttpError(502, f"The engine {how}.", kind="server_error", code=ENGINE_FAILED)
