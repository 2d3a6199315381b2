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
    "token_not_exchanged": reason(
        "A workload's token is not exchanged, and nobody unknown is told why; the organization's "
        "audit log has the reason.",
        PermissionDenied,
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
    "geography_fixed": reason(
        "A project's geography is given at its creation and stays; make another project.",
        InvalidArgument,
    ),
    "unsupported_parameter": reason(
        "OpenAI has this field, and the engine that serves the model, or this installation, does "
        "not; leave it out.",
        400,
        InvalidArgument,
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
    "address_not_allowed_by_organization": reason(
        "The organization's credentials are taken from its networks alone; ask from one of them, "
        "or have an owner add yours.",
        PermissionDenied,
    ),
    "networks_lock_you_out": reason(
        "The caller's own address would not be admitted afterwards; add its network, or call from "
        "one that is named.",
        FailedPrecondition,
    ),
    "client_certificate_required": reason(
        "The organization or the project takes calls only over a connection with a client "
        "certificate; present one, to the gateway or to the proxy in front of it.",
        PermissionDenied,
    ),
    "client_certificate_not_admitted": reason(
        "The client certificate is not valid, or leads to none that is active in the organization "
        "or the project.",
        PermissionDenied,
    ),
    "invalid_certificate": reason(
        "The certificate cannot be read, has expired, or has a key that is not supported; the "
        "message says which.",
        InvalidArgument,
    ),
    "certificate_in_use": reason(
        "The certificate is active somewhere; deactivate it first.", FailedPrecondition
    ),
    "certificate_locks_you_out": reason(
        "The caller's own certificate would not be admitted afterwards; call with one that would.",
        FailedPrecondition,
    ),
    "foreign_rotation": reason(
        "The old secret outlasts a rotation only with the key itself or one that made it.",
        FailedPrecondition,
    ),
    "key_lives_too_long": reason(
        "The organization's policy bounds the life of keys; set an earlier end.", InvalidArgument
    ),
    "service_accounts_only": reason(
        "By the organization's policy only service accounts get keys; make one, and its key.",
        PermissionDenied,
    ),
    "elevation_closed": reason(
        "What was asked for is decided, withdrawn or over; ask anew.", FailedPrecondition
    ),
    "own_key_affected": reason(
        "The key that asks would itself lose rights; use another owner's key.", FailedPrecondition
    ),
    "external_key_unavailable": reason(
        "The external key's keeper is away, refuses, or does not open what it wrapped: 409 where "
        "it is tried, 503 where something is sealed by it. The message has what it said.",
        FailedPrecondition,
        Unavailable,
    ),
    "object_damaged": reason(
        "A sealed object of a project with a key of its own was changed, cut or moved in the "
        "object store, or its key is no more; nothing opens it.",
        FailedPrecondition,
    ),
    "too_many_object_keys": reason(
        "The data key of the project was changed as often as it may be; go on in a new project.",
        FailedPrecondition,
    ),
    "external_key_in_use": reason(
        "The external key wraps a project's data key; give the project another one first.",
        FailedPrecondition,
    ),
    "managed_by_directory": reason(
        "The organization's directory decides on this person or group; change it there.",
        FailedPrecondition,
    ),
    "directory_disabled": reason(
        "No directory provisions the organization; an owner allows it with `windlass directory "
        "enable`.",
        PermissionDenied,
    ),
    "version_mismatch": reason(
        "It has changed since it was read; read it again.", FailedPrecondition
    ),
    "not_confirmed": reason(
        "A deletion needs the title of what it deletes, exactly as it is.", FailedPrecondition
    ),
    "not_scheduled": reason(
        "It is live, or its erasure has begun: there is nothing to undo.", FailedPrecondition
    ),
    "being_erased": reason(
        "The organization, or a project of it, is being erased: it cannot be exported now.",
        FailedPrecondition,
    ),
    "not_ready": reason("An export is downloaded once its state is `ready`.", FailedPrecondition),
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
