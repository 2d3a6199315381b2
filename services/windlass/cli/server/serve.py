"""`windlass serve`."""

import errno
import shlex
import socket
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from windlass.cli.framework.context import OWNER_KEY
from windlass.cli.framework.failures import USAGE, Problem, reported
from windlass.cli.server.config import ConfigFile, DataFolder, Targets, load

if TYPE_CHECKING:
    from windlass.core.config import Settings


def serve(
    config: ConfigFile = None,
    target: Targets = None,
    data: DataFolder = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on.")] = None,
    list_targets: Annotated[
        bool, typer.Option("--list-targets", help="Print the targets and exit.")
    ] = False,
) -> None:
    """Runs the control plane, or some of its modules."""
    with reported():
        if list_targets:
            _print_targets()
        else:
            _run(config, target, data, host, port)


def _print_targets() -> None:
    from windlass import targets

    for name, module in targets.MODULES.items():
        typer.echo(f"{name:<12} needs {', '.join(module.needs) or 'nothing'}")


def _run(
    config: Path | None, target: str | None, data: Path | None, host: str | None, port: int | None
) -> None:
    flags = {
        "targets": target.split(",") if target else None,
        "data_dir": data,
        "http.host": host,
        "http.port": port,
    }
    settings = load(config, flags)
    import uvloop

    from windlass.confinement import NoConfinement
    from windlass.core.telemetry import configure_logging, logger
    from windlass.embedded_postgres import PostgresError
    from windlass.serve import StartupError
    from windlass.serve import serve as run

    configure_logging(level=settings.log_level)
    serves_http = {"all", "gateway"} & set(settings.targets)
    if serves_http:
        _refuse_taken_port(settings)
    try:
        uvloop.run(run(settings, on_ready=partial(_lead_on, settings) if serves_http else None))
    except (StartupError, PostgresError, NoConfinement) as error:
        raise Problem(str(error), USAGE) from error
    except Exception as error:
        logger("serve").error("process_failed", exc_info=error)
        raise Problem(f"The server ended: {type(error).__name__}: {error}") from error


def _refuse_taken_port(settings: "Settings") -> None:
    """Raises Problem at once, which otherwise would follow the start of the database."""
    host, port = settings.http.host, settings.http.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            told = f"Cannot listen on {host}:{port}: {error.strerror}."
            if error.errno == errno.EADDRINUSE:
                told = f"Port {port} of {host} is in use. Choose another one with --port."
            raise Problem(told, USAGE) from error


def _lead_on(settings: "Settings") -> None:
    """Tells a person at a terminal where the platform is, and what to do next."""
    if not sys.stdout.isatty():
        return
    url, key = settings.public_url, settings.data_dir / OWNER_KEY
    typer.echo(f"\nWindlass answers at {url}.")
    if key.exists():
        typer.echo(f"The owner's key is in {key}. In another terminal:\n")
        typer.echo(f"  windlass auth login --base-url {url} < {shlex.quote(str(key))}")
    else:
        typer.echo(f"In another terminal, with a key:\n\n  windlass auth login --base-url {url}")
    typer.echo("  windlass models list\n")
