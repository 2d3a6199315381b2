"""Resolution of the server and the credentials of a command.

The first of these that applies wins: `--api-key`; `--data`; `--context`;
`WINDLASS_API_KEY`; the current context; `OPENAI_API_KEY`. A stored key goes
only to the address that it was stored with, and OpenAI's only to an address
that was named.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from windlass.cli.framework.failures import USAGE, Problem

LOCAL = "http://127.0.0.1:8080"
OWNER_KEY = "owner.key"
ADDRESS = "address"
# The name of a context that is stored without one.
USUAL = "default"


@dataclass(frozen=True, slots=True)
class Context:
    """A server and a credential, under a name."""

    base_url: str
    api_key: str = field(repr=False)
    project: str = ""
    organization: str = ""
    # File of the authorities that sign the server's certificate; empty for the machine's own.
    ca: str = ""
    # Of a person's session: by what it is renewed, and when its secret ends, in Unix seconds.
    refresh_token: str = field(default="", repr=False)
    secret_ends: str = ""


@dataclass(frozen=True, slots=True)
class Contexts:
    """All that are stored, and the name of the one in use."""

    current: str = ""
    known: Mapping[str, Context] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Flags:
    """Connection options of the command line."""

    base_url: str = ""
    api_key: str = field(default="", repr=False)
    context: str = ""
    data: Path | None = None
    project: str = ""
    organization: str = ""
    ca: str = ""


@dataclass(frozen=True, slots=True)
class ServerConnection:
    """A resolved connection, and the origin of its key."""

    base_url: str
    api_key: str = field(repr=False)
    project: str
    organization: str
    origin: str
    ca: str = ""
    # PEM file of the certificate, and of its key, that the client shows; empty: none.
    certificate: str = ""


def resolve(flags: Flags, environment: Mapping[str, str], stored: Contexts) -> ServerConnection:
    """The connection to use; raises Problem that says what to do when there is none."""
    asked = flags.base_url or environment.get("WINDLASS_BASE_URL", "")
    context, found = Context("", ""), None
    if flags.api_key:
        found = _key(flags.api_key, "--api-key", asked, stored)
    elif flags.data is not None:
        found = (
            Context(asked or _address(flags.data), _owner_key(flags.data)),
            str(flags.data / OWNER_KEY),
        )
    elif flags.context:
        context = _named(stored, flags.context)
        if flags.base_url and not same_address(flags.base_url, context.base_url):
            raise _other_address(flags.context, context)
        found = context, f"context {flags.context}"
    elif key := environment.get("WINDLASS_API_KEY", ""):
        found = _key(key, "WINDLASS_API_KEY", asked, stored)
    else:
        found = _ambient(asked, environment, stored)
        context = found[0]
    chosen, origin = found
    return ServerConnection(
        base_url=chosen.base_url,
        api_key=chosen.api_key,
        project=flags.project or environment.get("WINDLASS_PROJECT", "") or context.project,
        organization=flags.organization
        or environment.get("WINDLASS_ORGANIZATION", "")
        or context.organization,
        origin=origin,
        ca=flags.ca or environment.get("WINDLASS_CA", "") or context.ca,
        certificate=environment.get("WINDLASS_CLIENT_CERTIFICATE", ""),
    )


def _key(key: str, origin: str, asked: str, stored: Contexts) -> tuple[Context, str]:
    current = stored.known.get(stored.current)
    return Context(asked or (current.base_url if current else LOCAL), key), origin


def _ambient(asked: str, environment: Mapping[str, str], stored: Contexts) -> tuple[Context, str]:
    name = environment.get("WINDLASS_CONTEXT", "") or stored.current
    context = _named(stored, name) if name else None
    if context and (not asked or same_address(asked, context.base_url)):
        return context, f"context {name}"
    openai = environment.get("OPENAI_API_KEY", "")
    address = asked or environment.get("OPENAI_BASE_URL", "")
    if openai and address:
        return Context(address, openai), "OPENAI_API_KEY"
    if context:
        raise _other_address(name, context)
    raise Problem(
        "No API key. Run `windlass auth login`, set WINDLASS_API_KEY, or name the data folder of "
        "a server on this machine with --data.",
        USAGE,
    )


def _address(data: Path) -> str:
    """The address that the server of a data folder recorded."""
    path = data / ADDRESS
    return _line(path) if path.is_file() else LOCAL


def _owner_key(data: Path) -> str:
    return _line(data / OWNER_KEY)


def _line(path: Path) -> str:
    """The text of a file that the server wrote; raises Problem."""
    try:
        return path.read_text().strip()
    except OSError as error:
        raise Problem(f"{path} cannot be read: {error.strerror}.", USAGE) from error
    except UnicodeDecodeError as error:
        raise Problem(f"{path} is not text. Was it written by a server?", USAGE) from error


def _named(stored: Contexts, name: str) -> Context:
    if name not in stored.known:
        known = ", ".join(stored.known) or "there are none"
        raise Problem(f"No context {name!r} ({known}).", USAGE)
    return stored.known[name]


def _other_address(name: str, context: Context) -> Problem:
    message = f"The key of context {name} is for {context.base_url}; give one for this address."
    return Problem(message, USAGE)


def same_address(one: str, other: str) -> bool:
    """Returns True if two base URLs mean one server."""
    return _bare(one) == _bare(other)


def _bare(url: str) -> str:
    return url.rstrip("/").removesuffix("/v1").rstrip("/").lower()


def path() -> Path:
    """The file with the stored contexts."""
    from platformdirs import user_config_path

    return user_config_path("windlass", appauthor=False) / "config.yaml"


def load() -> Contexts:
    """The stored contexts; raises Problem for a file that does not hold any."""
    import yaml

    try:
        document: Any = yaml.safe_load(path().read_text()) or {}
        known = {
            str(name): Context(**{key: str(value) for key, value in entry.items()})
            for name, entry in (document.get("contexts") or {}).items()
        }
        return Contexts(str(document.get("current") or ""), known)
    except FileNotFoundError:
        return Contexts()
    except (yaml.YAMLError, AttributeError, TypeError, UnicodeDecodeError) as error:
        raise Problem(f"{path()} does not hold contexts; correct or remove it.", USAGE) from error


def save(contexts: Contexts) -> None:
    """Replaces the file, mode 0600: it holds keys."""
    import os
    import secrets

    import yaml

    document = {
        "current": contexts.current,
        "contexts": {
            name: {key: value for key in Context.__slots__ if (value := getattr(context, key))}
            for name, context in contexts.known.items()
        },
    }
    target = path()
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            yaml.safe_dump(document, file, sort_keys=False)
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
