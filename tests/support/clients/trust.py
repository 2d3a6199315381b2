"""The certificates that clients of tests trust."""

import functools
import ssl
from pathlib import Path

import httpx


@functools.cache
def trusted(ca: Path | None = None) -> ssl.SSLContext:
    """Those of this machine, or one file's; to read them costs more than tens of requests."""
    return httpx.create_ssl_context() if ca is None else ssl.create_default_context(cafile=ca)
