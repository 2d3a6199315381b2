"""Allowed destinations of a job's experiment trackers. Pure."""

import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from windlass.core.errors import InvalidArgument

_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)*")
_DEFAULT_PORTS = {"https": 443, "http": 80}


def origin(url: str) -> str:
    """Scheme, host and port of a URL in one spelling; raises ValueError."""
    parts = urlsplit(url)
    scheme, host, port = parts.scheme, parts.hostname, parts.port
    if scheme not in _DEFAULT_PORTS or not host or "@" in parts.netloc:
        raise ValueError("not an http or https URL")
    name = f"[{host}]" if ":" in host else host
    return f"{scheme}://{name}" + (f":{port}" if port not in (None, _DEFAULT_PORTS[scheme]) else "")


def destination(url: str, allowed: Sequence[str], *, param: str) -> str:
    """A URL that may be talked to, without a slash at its end; raises InvalidArgument."""
    try:
        found, parts = origin(url), urlsplit(url)
    except ValueError as error:
        raise InvalidArgument(f"{param} must be an http or https URL.", param=param) from error
    path = parts.path.rstrip("/")
    plain = _PATH.fullmatch(path) and not {".", ".."} & set(path.split("/"))
    if not plain or parts.query or parts.fragment:
        raise InvalidArgument(
            f"{param} must be a host and a path, without credentials, query or fragment.",
            param=param,
        )
    if found not in {origin(one) for one in allowed}:
        raise InvalidArgument(
            f"{param}: jobs may not report to {found}. An operator can allow it in "
            "tracking.allowed.",
            reason="tracker_not_allowed",
            param=param,
        )
    return found + path
