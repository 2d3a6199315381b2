"""`windlass serve`."""

from pathlib import Path
from typing import Annotated

import typer

from windlass.cli.framework.failures import USAGE, Problem, reported
from windlass.cli.server.config import ConfigFile, DataFolder, Targets, load


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
    try:
        uvloop.run(run(settings))
    except (StartupError, PostgresError, NoConfinement) as error:
        raise Problem(str(error), USAGE) from error
    except Exception as error:
        logger("serve").error("process_failed", exc_info=error)
        raise Problem(f"The server ended: {type(error).__name__}: {error}") from error
