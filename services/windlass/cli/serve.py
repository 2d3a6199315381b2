"""`windlass serve` and `windlass config check`: the server's own commands."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from windlass.core.config import Settings

ConfigFile = Annotated[
    Path | None, typer.Option("--config", "-c", help="YAML file.", dir_okay=False, exists=True)
]
Targets = Annotated[
    str | None, typer.Option("--target", help="Modules to run, comma-separated; default: all.")
]

config_app = typer.Typer(help="The server's configuration.", no_args_is_help=True)


def _load(path: Path | None, flags: dict[str, Any]) -> "Settings":
    from windlass.core import config

    try:
        return config.load(path, flags)
    except (ValueError, OSError) as error:
        typer.echo(f"windlass: the configuration is not valid:\n{error}", err=True)
        raise typer.Exit(2) from error


def serve(
    config: ConfigFile = None,
    target: Targets = None,
    data: Annotated[Path | None, typer.Option(help="Data folder.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on.")] = None,
    list_targets: Annotated[bool, typer.Option("--list-targets", help="Print and exit.")] = False,
) -> None:
    """Runs the control plane, or some of its modules."""
    from windlass import targets

    if list_targets:
        for name, module in targets.MODULES.items():
            typer.echo(f"{name:<12} needs {', '.join(module.needs) or 'nothing'}")
        return
    flags = {
        "targets": target.split(",") if target else None,
        "data_dir": data,
        "http.host": host,
        "http.port": port,
    }
    settings = _load(config, flags)
    import uvloop

    from windlass.core.telemetry import configure_logging
    from windlass.serve import StartupError
    from windlass.serve import serve as run

    configure_logging(level=settings.log_level)
    try:
        uvloop.run(run(settings))
    except StartupError as error:
        typer.echo(f"windlass: {error}", err=True)
        raise typer.Exit(2) from error


@config_app.command("check")
def check(config: ConfigFile = None, target: Targets = None) -> None:
    """Explains what is wrong or doubtful; exit code 1 when the server would not start."""
    settings = _load(config, {"targets": target.split(",") if target else None})
    from windlass import targets
    from windlass.core.config import check as findings

    found = [(finding.level, finding.key, finding.message) for finding in findings(settings)]
    try:
        modules = targets.expand(settings.targets)
    except ValueError as error:
        found.append(("error", "targets", str(error)))
        modules = ()
    for module, need in targets.missing_peers(modules, settings.peers):
        found.append(("error", f"peers.{need}", f"{module} calls {need}; say where it answers."))
    for level, key, message in found:
        typer.echo(f"{level}: {key}: {message}")
    if any(level == "error" for level, _, _ in found):
        raise typer.Exit(1)
    typer.echo("The configuration can work.")


@config_app.command("show")
def show(config: ConfigFile = None) -> None:
    """Prints the configuration in force, without secrets."""
    import yaml

    settings = _load(config, {})
    typer.echo(yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False).rstrip())
