"""Sessions of people as they are stored: renewed before they end, by one command at a time."""

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from windlass.cli.framework import context
from windlass.cli.framework.context import Context, Contexts
from windlass.cli.framework.failures import Problem

# Before the end of a secret, so that a command which takes a while still holds one.
EARLY_SECONDS = 120
_SECONDS = 30.0


def post(base_url: str, path: str, form: Mapping[str, str], *, ca: str = "") -> dict[str, Any]:
    """Answer of an endpoint of sign-in; an error of OAuth has `error` in it.

    Raises ConnectionFailed, and Problem for an answer that is neither.
    """
    import ssl

    import httpx

    from windlass.client.errors import translated

    tls = ssl.create_default_context(cafile=ca) if ca else True
    url = base_url.rstrip("/").removesuffix("/v1") + path
    with translated():
        answer = httpx.post(url, data=dict(form), verify=tls, timeout=_SECONDS)
    with contextlib.suppress(ValueError):
        body = answer.json()
        if isinstance(body, dict) and not isinstance(body.get("error"), dict):
            return body
    raise Problem(f"{base_url} answered {answer.status_code} to a sign-in.")


def with_session(entry: Context, tokens: Mapping[str, Any]) -> Context:
    """The context with the secrets that a sign-in or a renewal gave."""
    return replace(
        entry,
        api_key=str(tokens["access_token"]),
        refresh_token=str(tokens["refresh_token"]),
        secret_ends=str(int(time.time()) + int(tokens["expires_in"])),
    )


def renewed(stored: Contexts, name: str) -> Contexts:
    """The contexts with the session of one renewed where it is time; raises Problem."""
    if not _is_due(stored.known.get(name)):
        return stored
    with _turn():
        # Another command may have done it meanwhile; a token that is used twice ends the session.
        stored = context.load()
        entry = stored.known.get(name)
        if entry is None or not _is_due(entry):
            return stored
        form = {"grant_type": "refresh_token", "refresh_token": entry.refresh_token}
        answer = post(entry.base_url, "/login/token", form, ca=entry.ca)
        if "access_token" not in answer:
            raise Problem(
                f"The session of context {name} has ended: run `windlass auth login --web --name "
                f"{name}`."
            )
        stored = replace(stored, known={**stored.known, name: with_session(entry, answer)})
        context.save(stored)
        return stored


def _is_due(entry: Context | None) -> bool:
    return (
        entry is not None
        and bool(entry.refresh_token)
        and float(entry.secret_ends or 0) - time.time() < EARLY_SECONDS
    )


@contextlib.contextmanager
def _turn() -> Iterator[None]:
    """Waits until no other command renews."""
    path = context.path().with_name("config.lock")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        with contextlib.suppress(ImportError):
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
