"""Refusals, in OpenAI's error shape."""

from http import HTTPStatus
from typing import Any


class ApiError(Exception):
    """A request that is answered with an error; `code` is stable, `message` is for people."""

    def __init__(
        self,
        message: str,
        *,
        status: int = HTTPStatus.BAD_REQUEST,
        param: str | None = None,
        code: str | None = None,
    ):
        super().__init__(message)
        self.message = message
        self.status = int(status)
        self.param = param
        self.code = code

    def body(self) -> dict[str, Any]:
        """The error object, also used for a stream that fails midway."""
        kinds = {404: "not_found_error", 429: "rate_limit_error"}
        is_server = self.status >= HTTPStatus.INTERNAL_SERVER_ERROR
        default = "server_error" if is_server else "invalid_request_error"
        return {
            "error": {
                "message": self.message,
                "type": kinds.get(self.status, default),
                "param": self.param,
                "code": self.code,
            }
        }


def bad_value(message: str, param: str) -> ApiError:
    """A 400 that names the parameter."""
    return ApiError(message, param=param, code="invalid_value")


def unsupported(param: str, why: str) -> ApiError:
    """A 400 for something that OpenAI has and this engine has not."""
    return ApiError(f"{param}: {why}", param=param, code="unsupported_parameter")


def unknown_parameter(name: str) -> ApiError:
    """A 400 for something that neither OpenAI nor this engine has."""
    return ApiError(f"Unknown parameter: '{name}'.", param=name, code="unknown_parameter")


def model_not_found(name: str) -> ApiError:
    """A 404 in OpenAI's words."""
    return ApiError(
        f"The model `{name}` does not exist.",
        status=HTTPStatus.NOT_FOUND,
        param="model",
        code="model_not_found",
    )


def not_served(path: str) -> ApiError:
    """A 404 for a route that an engine does not have."""
    message = f"The model does not support {path}."
    return ApiError(message, status=HTTPStatus.NOT_FOUND, param="model")


_IS = {
    "generate": "is not a reward model and cannot score answers",
    "score": "scores texts and writes none; send it to /v1/score or /v1/rerank",
    "embed": "is an embedder, which makes vectors of texts; send it to /v1/embeddings",
}


def wrong_task(name: str, task: str) -> ApiError:
    """A 400 for a model of one task (`generate`, `score`, `embed`) that was asked for another."""
    return ApiError(f"The model `{name}` {_IS[task]}.", param="model", code="wrong_model_task")


def no_images(name: str, where: str) -> ApiError:
    """A 400 for an image, at a place of the request, to a model that reads text alone."""
    return ApiError(
        f"The model `{name}` reads no images.", param=where, code="unsupported_parameter"
    )


def too_long(prompt: int, completion: int, *, limit: int, param: str) -> ApiError:
    """A 400 for a prompt and a completion that do not fit; all in tokens."""
    return ApiError(
        f"This model's maximum context length is {limit} tokens. However, you requested "
        f"{prompt + completion} tokens ({prompt} in the prompt, {completion} in the completion). "
        "Please reduce the length of either one.",
        param=param,
        code="context_length_exceeded",
    )


def overloaded() -> ApiError:
    """A 503 when the waiting line is full; clients of OpenAI retry it."""
    return ApiError(
        "The engine is overloaded. Try again later.",
        status=HTTPStatus.SERVICE_UNAVAILABLE,
        code="engine_overloaded",
    )


def asleep() -> ApiError:
    """A 404 of an engine that sleeps, for a request that was sent before that was known.

    As of a model that it has unloaded: gateways take the request elsewhere, or hold it.
    """
    return ApiError(
        "The engine sleeps. Try again.",
        status=HTTPStatus.NOT_FOUND,
        code="engine_asleep",
    )


def invalid_schema(where: str, why: str, *, code: str = "invalid_json_schema") -> ApiError:
    """A 400 for a schema that an answer cannot be held to."""
    return ApiError(f"Invalid schema for {where}. {why}", param=where, code=code)


def too_complex() -> ApiError:
    """A 400 for a schema that takes too much work for a token; only generating shows it."""
    return ApiError("The schema is too complex to enforce.", code="invalid_json_schema")
