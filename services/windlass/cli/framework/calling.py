"""Options and error handling of every command that talks to a server."""

import functools
import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from windlass.cli.framework import context
from windlass.cli.framework.context import Flags, ServerConnection
from windlass.cli.framework.failures import INTERRUPTED, REFUSED, USAGE, Problem, explain, reported
from windlass.cli.framework.output import Output, OutputFormat
from windlass.cli.framework.renewal import renewed

if TYPE_CHECKING:
    from windlass.client import Windlass

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Command = Callable[..., None]
# Refusals after which a person shows again who they are.
_SIGN_IN_ANEW = frozenset({"fresh_sign_in_required", "sign_in_too_weak"})


@dataclass(frozen=True)
class Call:
    """One run of a command: its connection, made when first needed, and its output."""

    flags: Flags
    out: Output

    @cached_property
    def connection(self) -> ServerConnection:
        """The server and credential; raises Problem."""
        stored = context.load()
        found = context.resolve(self.flags, os.environ, stored)
        kind, _, name = found.origin.partition(" ")
        if kind != "context":
            return found
        return replace(found, api_key=renewed(stored, name).known[name].api_key)

    @cached_property
    def client(self) -> "Windlass":
        """A session; raises Problem."""
        return self.session(self.connection)

    def session(self, connection: ServerConnection) -> "Windlass":
        """Returns a session whose calls say on a terminal whom they wait for; raises Problem."""
        client = connect(connection)
        client.awaiting = lambda: self.out.awaiting(f"waiting for {client.base_url}")
        return client

    def confirm(self, question: str, yes: bool) -> None:
        """Goes on only when a person agrees or `--yes` was given."""
        if yes:
            return
        if not sys.stdin.isatty():
            raise Problem(f"{question} There is no terminal to confirm on: pass --yes.", USAGE)
        if not typer.confirm(question, err=True):
            self.out.note("Aborted; nothing was changed.")
            raise typer.Exit(REFUSED)


def connect(connection: ServerConnection, *, timeout: float = 60.0) -> "Windlass":
    """A session with the server of a connection; raises Problem for values that none can have."""
    from windlass.client import Windlass

    try:
        return Windlass(
            connection.base_url,
            connection.api_key,
            project=connection.project,
            organization=connection.organization,
            timeout=timeout,
            ca=connection.ca,
            certificate=connection.certificate,
        )
    except ValueError as error:
        raise Problem(str(error), USAGE) from error
    except OSError as error:
        why = error.strerror or error
        raise Problem(f"{connection.ca} holds no certificate authority: {why}.", USAGE) from error


def group(about: str) -> typer.Typer:
    """A noun: commands that share a first word."""
    return typer.Typer(help=about, no_args_is_help=True, rich_markup_mode=None)


def command(app: typer.Typer, name: str) -> Callable[[Command], Command]:
    """Registers a function whose first parameter is the Call; it gets the common options."""

    def register(function: Command) -> Command:
        app.command(name)(with_call(function))
        return function

    return register


def with_call(function: Command) -> Command:
    """`function` with the common options instead of its Call, and with its errors reported."""
    own = list(inspect.signature(function).parameters.values())[1:]
    common = list(inspect.signature(_call).parameters.values())
    names = {parameter.name for parameter in common}

    @functools.wraps(function)
    def run(**values: Any) -> None:
        call = _call(**{name: values.pop(name) for name in names})
        with reported():
            try:
                function(call, **values)
            except KeyboardInterrupt as error:
                raise typer.Exit(INTERRUPTED) from error
            except Exception as error:
                _name_context(call, error)
                raise

    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*own, *common)]
    run.__signature__ = (  # type: ignore[attr-defined]  # read by `inspect.signature`
        inspect.Signature(parameters)
    )
    hints = get_type_hints(function, include_extras=True) | get_type_hints(
        _call, include_extras=True
    )
    run.__annotations__ = {parameter.name: hints[parameter.name] for parameter in parameters}
    return run


def _name_context(call: Call, error: Exception) -> None:
    """Raises a Problem that tells how to sign in anew to a context that is not the usual one."""
    if getattr(error, "code", "") not in _SIGN_IN_ANEW:
        return
    kind, _, name = call.connection.origin.partition(" ")
    if kind == "context" and name != context.USUAL:
        told = explain(error)
        line = told[0] if told else str(error)
        raise Problem(
            f"{line} Of this context: windlass auth login --web --fresh --name {name}."
        ) from error


def _call(
    *,
    output: Annotated[
        OutputFormat, typer.Option("--output", "-o", help="Output format.")
    ] = OutputFormat.TABLE,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print only data and errors.")
    ] = False,
    no_color: Annotated[
        bool, typer.Option("--no-color", help="Print without color [NO_COLOR].")
    ] = False,
    base_url: Annotated[str, typer.Option(help="URL of the server [WINDLASS_BASE_URL].")] = "",
    api_key: Annotated[str, typer.Option(help="API key [WINDLASS_API_KEY].")] = "",
    context_name: Annotated[
        str, typer.Option("--context", help="Name of a stored server [WINDLASS_CONTEXT].")
    ] = "",
    data: Annotated[
        Path | None,
        typer.Option(help="Data folder of a server on this machine; acts as its owner."),
    ] = None,
    project: Annotated[str, typer.Option(help="Project to act in [WINDLASS_PROJECT].")] = "",
    organization: Annotated[
        str, typer.Option(help="Organization to act in [WINDLASS_ORGANIZATION].")
    ] = "",
    ca: Annotated[
        str,
        typer.Option(
            metavar="FILE", help="Certificate authorities that sign the server's [WINDLASS_CA]."
        ),
    ] = "",
) -> Call:
    flags = Flags(
        base_url=base_url,
        api_key=api_key,
        context=context_name,
        data=data,
        project=project,
        organization=organization,
        ca=ca,
    )
    color = not no_color and not os.environ.get("NO_COLOR")
    return Call(flags, Output(output, quiet=quiet, color=color))
