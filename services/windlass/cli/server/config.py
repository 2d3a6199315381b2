"""`windlass config`, and how server commands read the configuration."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from windlass.cli.framework.calling import group
from windlass.cli.framework.failures import USAGE, reported
from windlass.cli.framework.output import Output, OutputFormat
from windlass.client.display.text import printable

if TYPE_CHECKING:
    from windlass.core.config import Settings

ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", help="YAML file of the configuration.", dir_okay=False, exists=True
    ),
]
Targets = Annotated[
    str | None, typer.Option("--target", help="Modules to run, comma-separated; default: all.")
]
DataFolder = Annotated[Path | None, typer.Option("--data", help="Data folder.")]

app = group("The server's configuration.")


def load(path: Path | None, flags: dict[str, Any]) -> "Settings":
    """The configuration in force; raises Problem for one that is not valid."""
    from windlass.core import config

    try:
        return config.load(path, flags)
    except config.ConfigError as error:
        lines = "".join(f"\n  {printable(line)}" for line in str(error).splitlines())
        typer.echo(f"windlass: the configuration is not valid:{lines}", err=True)
        raise typer.Exit(USAGE) from error


@app.command("check")
def check(
    config: ConfigFile = None,
    target: Targets = None,
    data: DataFolder = None,
    connect: Annotated[
        bool, typer.Option("--connect", help="Also try the database, its keys and the store.")
    ] = False,
) -> None:
    """Explains what is wrong or doubtful; exit code 1 when the server would not start."""
    with reported():
        flags = {"targets": target.split(",") if target else None, "data_dir": data}
        settings = load(config, flags)
        found = _findings(settings)
        if connect and not any(level == "error" for level, _, _ in found):
            found += _connections(settings)
        for level, key, message in found:
            typer.echo(f"{level}: {key}: {message}")
        if any(level == "error" for level, _, _ in found):
            raise typer.Exit(1)
        typer.echo("The configuration is valid.")


def _connections(settings: "Settings") -> list[tuple[str, str, str]]:
    import asyncio

    from windlass.core.telemetry import configure_logging
    from windlass.maintenance.connections import check_connections

    configure_logging(level="ERROR")
    levels = {"ok": "ok", "warn": "warning", "fail": "error"}
    out = Output(OutputFormat.TABLE, quiet=False, color=False)
    with out.waiting("trying the database, the keys and the store"):
        found = asyncio.run(check_connections(settings))
    return [(levels[one.level], one.part, f"{one.message} {one.remedy}".rstrip()) for one in found]


def _findings(settings: "Settings") -> list[tuple[str, str, str]]:
    from windlass import targets
    from windlass.core.config import unread_variables
    from windlass.serve import findings

    try:
        modules = targets.expand(settings.targets)
    except ValueError as error:
        return [("error", "targets", str(error))]
    found = [(str(one.level), one.key, one.message) for one in findings(settings)]
    found += [("warning", name, f"It {why}") for name, why in unread_variables()]
    if "agent" in modules and settings.agent.enabled:
        found += _unconfined(settings.agent.confinement)
    missing = targets.missing_peers(modules, settings.peers)
    return [
        *found,
        *(
            ("error", f"peers.{need}", f"{module} calls {need}; set its address.")
            for module, need in missing
        ),
    ]


def _unconfined(mode: str) -> list[tuple[str, str, str]]:
    """The obstacles to walls around engines and jobs on this machine."""
    from windlass.confinement import NoConfinement, confinement

    key, what = "agent.confinement", "Engines and jobs run as the server's user, and can read"
    if mode == "off":
        return [("warning", key, f"It is off. {what} what that user can.")]
    try:
        confinement("required")
    except NoConfinement as error:
        level = "error" if mode == "required" else "warning"
        return [(level, key, f"{error}. {what} what that user can.")]
    return []


@app.command("show")
def show(config: ConfigFile = None, data: DataFolder = None) -> None:
    """Prints the configuration in force, without secrets."""
    import yaml

    with reported():
        settings = load(config, {"data_dir": data})
        typer.echo(yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False).rstrip())


@app.command("example")
def example() -> None:
    """Prints a file with every setting at its default, each explained in a comment."""
    with reported():
        from windlass.core.config.example import example as text

        typer.echo(text(), nl=False)
