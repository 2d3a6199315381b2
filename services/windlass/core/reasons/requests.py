"""Reasons of requests: what any call may be answered with, whose it is, and how HTTP reads it."""

from windlass.core.errors import (
    AlreadyExists,
    AppError,
    DeadlineExceeded,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
)
from windlass.core.reasons.reason import reason

REASONS = {
    # Where nothing more exact is known.
    InvalidArgument.default_reason: reason(
        "A value is not what the field takes; the message says what it expects.",
        InvalidArgument,
        400,
    ),
    Unauthenticated.default_reason: reason(
        "The API key is missing, unknown, expired or revoked; send a good one as a bearer token.",
        Unauthenticated,
    ),
    PermissionDenied.default_reason: reason(
        "The key's role does not allow this; ask an owner for a role that does.", PermissionDenied
    ),
    NotFound.default_reason: reason(
        "The resource does not exist, or belongs to another project; check its id and the key.",
        NotFound,
    ),
    AlreadyExists.default_reason: reason("The name is taken; choose another.", AlreadyExists),
    FailedPrecondition.default_reason: reason(
        "The resource is not in a state that allows this; asking again does not help.",
        FailedPrecondition,
    ),
    ResourceExhausted.default_reason: reason(
        "A limit is reached; try again after the seconds of the header `retry-after`.",
        ResourceExhausted,
        429,
    ),
    Unavailable.default_reason: reason(
        "A part of the service is not responding; try again.", Unavailable, 503
    ),
    DeadlineExceeded.default_reason: reason(
        "The call took longer than its caller was willing to wait; try again.",
        DeadlineExceeded,
        504,
    ),
    AppError.default_reason: reason(
        "Something unexpected happened; the server's log has it under the request's id.",
        Internal,
        500,
    ),
    # Bodies, parameters and addresses.
    "invalid_json": reason(
        "The body cannot be read as JSON, or is nested too deeply; send valid JSON.",
        InvalidArgument,
        400,
    ),
    "missing_required_parameter": reason(
        "A required field is absent; `param` names it.", InvalidArgument, 400
    ),
    "unknown_parameter": reason(
        "The operation has no field of this name; check its spelling.", InvalidArgument, 400
    ),
    "invalid_image": reason(
        "An image is of another format than PNG, JPEG, WebP or GIF, is animated, or has too many "
        "bytes or pixels; the message says which.",
        400,
    ),
    "host_not_allowed": reason(
        "Images are fetched from hosts that an operator lists in `inference.media_hosts`; send it "
        "in the request as a data: URL.",
        400,
    ),
    "too_many_images": reason(
        "Images of too many requests are on their way to engines at once; try again, or send "
        "smaller ones.",
        503,
    ),
    "image_not_fetched": reason(
        "The host of an image did not send it; the message says why. Send it in the request as a "
        "data: URL.",
        400,
    ),
    "unsupported_parameter": reason(
        "OpenAI has this field, and the engine that serves the model does not; leave it out.", 400
    ),
    "unknown_url": reason("No operation has this path; /openapi.json lists all.", 404),
    "method_not_allowed": reason(
        "The path takes other methods; the header `allow` names them.", 405
    ),
    "request_too_large": reason(
        "The body is larger than the server takes (`http.max_body_bytes`); send less.", 413
    ),
    "request_timeout": reason(
        "The request arrived too slowly; send it again over a faster connection.", 408
    ),
    "url_too_long": reason("The request's URL is too long; shorten its query.", 414),
    "headers_too_large": reason("The request's headers are too large; send fewer.", 431),
    "invalid_http": reason("The request is not HTTP as it should be; check the client.", 400),
    "server_busy": reason("Too many connections are open; try again.", 503),
    "truncated": reason("The upload ended before its form was complete; send it again.", 400),
    # Whose request it is.
    "project_required": reason(
        "The call needs a project; send the header `OpenAI-Project`, or use a project's key.",
        PermissionDenied,
    ),
    "mismatched_project": reason(
        "The key is not of the project that the header names, or the project is archived.",
        PermissionDenied,
    ),
    "mismatched_organization": reason(
        "The key is not of the organization that the header names; use one of its own.",
        PermissionDenied,
    ),
    "too_many_attempts": reason(
        "Too many wrong keys have come from this address; wait before trying again.",
        ResourceExhausted,
        429,
    ),
    "missing_token": reason(
        "A process called another without its token; check that all share one database.",
        Unauthenticated,
    ),
    "invalid_token": reason(
        "A process called another with a token that is not accepted; check the machines' clocks.",
        Unauthenticated,
    ),
    "last_owner": reason(
        "Nobody could take the last owner's place; make another person owner first.",
        FailedPrecondition,
    ),
    "address_not_allowed": reason(
        "The key is taken from its networks alone; ask from one of them, or have it changed.",
        PermissionDenied,
    ),
    "foreign_rotation": reason(
        "The old secret outlasts a rotation only with the key itself or one that made it.",
        FailedPrecondition,
    ),
    "own_key_affected": reason(
        "The key that asks would itself lose rights; use another owner's key.", FailedPrecondition
    ),
    "quota_exceeded": reason(
        "A quota is used up: 403 until something is deleted or the quota raised, 429 until "
        "running work ends.",
        PermissionDenied,
        ResourceExhausted,
    ),
    # What the services stand on.
    "database_unavailable": reason("The database is not responding; try again.", Unavailable),
    "storage_unavailable": reason(
        "The object store is not responding; try again.", Unavailable, 503
    ),
    "storage_full": reason(
        "The storage is full and nothing was stored; an operator must make room.", Unavailable, 507
    ),
    "stale": reason(
        "A process has not heard from a service for too long and is not ready; try again.",
        Unavailable,
    ),
}
