"""`windlass auth`: a key for a server, kept as a named context."""

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from windlass.cli.access.questions import add_questions
from windlass.cli.access.sessions import add_sessions
from windlass.cli.framework import context
from windlass.cli.framework.calling import Call, command, group
from windlass.cli.framework.columns import Item
from windlass.cli.framework.context import Context, Contexts, ServerConnection
from windlass.cli.framework.failures import USAGE, Problem
from windlass.cli.framework.renewal import renewed, with_session

app = group("Who you are to a server, and what you may do.")
add_questions(app)
add_sessions(app)
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


Name = Annotated[str, typer.Option(help="Name under which the server is stored.")]


@command(app, "login")
def login(
    call: Call,
    name: Name = context.USUAL,
    web: Annotated[
        bool, typer.Option("--web", help="Sign in with a browser on this machine.")
    ] = False,
    device: Annotated[
        bool, typer.Option("--device", help="Sign in with a browser elsewhere, by a code.")
    ] = False,
    invite: Annotated[str, typer.Option(help="Link of an invite, with --web.")] = "",
    email: Annotated[
        str, typer.Option(help="Address by which your organization is found, with --web.")
    ] = "",
    fresh: Annotated[
        bool,
        typer.Option("--fresh", help="Show again who you are, with --web or --device."),
    ] = False,
) -> None:
    """Signs in, or verifies a key and stores it; without --api-key it is asked for, or read from
    stdin. With --web or --device, --organization names whose own issuers to offer.
    """
    stored, flags = context.load(), call.flags
    entry = _server(call, stored.known.get(name))
    if web or device:
        along = {"invite": invite, "email": email, "organization": flags.organization}
        if fresh:
            along["fresh"] = "true"
            if not any(along[name] for name in ("invite", "email", "organization")):
                along["organization"] = _present_organization(call, name)
        entry = _signed_in(call, entry, web=web, along=along)
        flags = replace(flags, organization="")
    else:
        entry = replace(entry, api_key=_key(call))
    entry = replace(entry, project=flags.project, organization=flags.organization)
    connection = ServerConnection(
        entry.base_url, entry.api_key, entry.project, entry.organization, "login", entry.ca
    )
    with call.session(connection) as client:
        me = client.get("/v1/me")
    context.save(Contexts(name, {**stored.known, name: entry}))
    call.out.item(_status(me, entry.base_url, f"context {name}"))
    call.out.note(f"Stored as context {name} in {context.path()}.")


@command(app, "logout")
def logout(call: Call, name: Name = "") -> None:
    """Ends the session of a context, everywhere within a second, and forgets the context."""
    stored = context.load()
    name = name or stored.current
    entry = stored.known.get(name)
    if entry is None:
        raise Problem(f"No context {name!r}.", USAGE)
    if entry.refresh_token:
        from windlass.cli.access import sign_in

        sign_in.end(entry.base_url, entry.refresh_token, ca=entry.ca)
    rest = {key: one for key, one in stored.known.items() if key != name}
    context.save(Contexts("" if stored.current == name else stored.current, rest))
    ended = "Signed out" if entry.refresh_token else "The key stays valid; its context is forgotten"
    call.out.note(f"{ended}: {name}.")


def _server(call: Call, known: Context | None) -> Context:
    """The server that a login is for, without a credential yet; raises Problem."""
    flags = call.flags
    base_url = flags.base_url or os.environ.get("WINDLASS_BASE_URL", "")
    base_url = base_url or (known.base_url if known else context.LOCAL)
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Problem(f"{base_url!r} is not a URL such as https://windlass.example.com.", USAGE)
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        call.out.note(f"Warning: {base_url} is not encrypted; others may read the key.")
    ca = flags.ca or os.environ.get("WINDLASS_CA", "") or (known.ca if known else "")
    return Context(base_url, "", ca=str(Path(ca).absolute()) if ca else "")


def _signed_in(call: Call, entry: Context, *, web: bool, along: Mapping[str, str]) -> Context:
    """The server with a session of the person at this terminal, or elsewhere; raises Problem."""
    import socket

    from windlass.cli.access import sign_in

    if web:
        tokens = sign_in.by_browser(entry.base_url, along, ca=entry.ca, note=call.out.note)
    else:
        named = {name: along.get(name, "") for name in ("organization", "fresh")}
        named["device"] = f"windlass on {socket.gethostname()}"
        tokens = sign_in.by_code(entry.base_url, named, ca=entry.ca, note=call.out.note)
    return with_session(entry, tokens)


def _present_organization(call: Call, name: str) -> str:
    """The organization of a context's session, whose issuers may be its own; empty where it ended.

    So whoever is told to sign in anew names nothing that was named once.
    """
    from windlass.client.errors import ConnectionFailed, WindlassError

    try:
        entry = renewed(context.load(), name).known.get(name)
        if entry is None or not entry.refresh_token:
            return ""
        connection = ServerConnection(entry.base_url, entry.api_key, "", "", "login", entry.ca)
        with call.session(connection) as client:
            found = client.get("/v1/me")["principal"]["organization_id"]
    except (Problem, WindlassError, ConnectionFailed):
        return ""
    return str(found)


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
