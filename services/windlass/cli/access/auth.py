"""`windlass auth`: a key for a server, kept as a named context."""

import os
import sys
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from windlass.cli.framework import context
from windlass.cli.framework.calling import Call, command, group
from windlass.cli.framework.columns import Item
from windlass.cli.framework.context import Context, Contexts, ServerConnection
from windlass.cli.framework.failures import USAGE, Problem

app = group("Who you are to a server.")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@command(app, "login")
def login(
    call: Call,
    name: Annotated[str, typer.Option(help="Name under which the server is stored.")] = "default",
) -> None:
    """Verifies a key and stores it; without --api-key it is asked for, or read from stdin."""
    stored, flags = context.load(), call.flags
    known = stored.known.get(name)
    base_url = flags.base_url or os.environ.get("WINDLASS_BASE_URL", "")
    base_url = base_url or (known.base_url if known else context.LOCAL)
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Problem(f"{base_url!r} is not a URL such as https://windlass.example.com.", USAGE)
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        call.out.note(f"Warning: {base_url} is not encrypted; others may read the key.")
    ca = flags.ca or os.environ.get("WINDLASS_CA", "") or (known.ca if known else "")
    ca = str(Path(ca).absolute()) if ca else ""
    connection = ServerConnection(
        base_url, _key(call), flags.project, flags.organization, "login", ca
    )
    with call.session(connection) as client:
        me = client.get("/v1/me")
    entry = Context(base_url, connection.api_key, flags.project, flags.organization, ca)
    context.save(Contexts(name, {**stored.known, name: entry}))
    call.out.item(_status(me, base_url, f"context {name}"))
    call.out.note(f"Stored as context {name} in {context.path()}.")


def _key(call: Call) -> str:
    if call.flags.api_key or call.flags.data:
        return call.connection.api_key
    if sys.stdin.isatty():
        key = str(typer.prompt("API key", hide_input=True, err=True))
    else:
        key = sys.stdin.readline()
    if not key.strip():
        raise Problem("No API key was entered.", USAGE)
    return key.strip()


@command(app, "status")
def status(call: Call) -> None:
    """Shows the server, the credential and what it may do."""
    connection = call.connection
    me = call.client.get("/v1/me")
    call.out.item(_status(me, connection.base_url, connection.origin))


def _status(me: Item, base_url: str, origin: str) -> Item:
    principal = me.get("principal") or {}
    key = me.get("key") or {}
    return {
        "id": principal.get("user_id"),
        "base_url": base_url,
        "credential": origin,
        "key": key.get("redacted"),
        "organization": (me.get("organization") or {}).get("id"),
        "project": (me.get("project") or {}).get("id"),
        "roles": principal.get("roles"),
    }
