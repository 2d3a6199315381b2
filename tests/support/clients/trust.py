"""The certificates that clients of tests trust."""

import functools
import os
import ssl
from pathlib import Path

import httpx


def trusted(ca: Path | None = None) -> ssl.SSLContext:
    """Returns those of a file, of SSL_CERT_FILE if no file is named, or else of this machine.

    They are read once, which costs more than tens of requests.
    """
    return _read(str(ca or os.environ.get("SSL_CERT_FILE", "")))


@functools.cache
def _read(file: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=file) if file else httpx.create_ssl_context()
