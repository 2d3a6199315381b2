"""Kubernetes' Status object: how refusals are written, as by an API server; pure."""

import orjson

from windlass.sessions.access.kube_request import KubeRequest

_REASONS = {
    400: ("Bad Request", "BadRequest"),
    401: ("Unauthorized", "Unauthorized"),
    403: ("Forbidden", "Forbidden"),
    404: ("Not Found", "NotFound"),
    405: ("Method Not Allowed", "MethodNotAllowed"),
    408: ("Request Timeout", "Timeout"),
    411: ("Length Required", "BadRequest"),
    413: ("Payload Too Large", "RequestEntityTooLarge"),
    417: ("Expectation Failed", "BadRequest"),
    429: ("Too Many Requests", "TooManyRequests"),
    431: ("Request Header Fields Too Large", "BadRequest"),
    500: ("Internal Server Error", "InternalError"),
    501: ("Not Implemented", "BadRequest"),
    502: ("Bad Gateway", "InternalError"),
    503: ("Service Unavailable", "ServiceUnavailable"),
    504: ("Gateway Timeout", "Timeout"),
}


def refusal(code: int, message: str, *, closes: bool, about: KubeRequest | None = None) -> bytes:
    """A whole answer: head and Status object."""
    phrase, reason = _REASONS[code]
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "details": _details(about),
        "code": code,
    }
    body = orjson.dumps(status)
    lines = [
        f"HTTP/1.1 {code} {phrase}",
        "content-type: application/json",
        f"content-length: {len(body)}",
        "cache-control: no-store",
    ]
    if code == 401:
        lines.append('www-authenticate: Bearer realm="windlass"')
    if code in (429, 503):
        lines.append("retry-after: 1")
    if closes:
        lines.append("connection: close")
    return "\r\n".join([*lines, "", ""]).encode() + body


def forbidden(user: str, verb: str, request: KubeRequest, why: str) -> str:
    """The sentence of a 403, in kubectl's words."""
    what = f'resource "{request.kind}"' if request.is_resource else f'path "{request.path}"'
    return f'{request.kind} is forbidden: User "{user}" cannot {verb} {what}: {why}.'


def _details(about: KubeRequest | None) -> dict[str, str]:
    if about is None or not about.is_resource:
        return {}
    found = {"name": about.name, "group": about.api_group, "kind": about.resource}
    return {key: value for key, value in found.items() if value}
