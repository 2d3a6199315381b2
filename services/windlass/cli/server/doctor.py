"""`windlass doctor`: what is well on the server's machine, what is not, and what to do."""

from typing import TYPE_CHECKING, Annotated

import typer

from windlass.cli.framework.columns import field
from windlass.cli.framework.failures import REFUSED, reported
from windlass.cli.framework.output import Output, OutputFormat
from windlass.cli.server.config import ConfigFile, DataFolder, load
from windlass.client.display.text import printable

if TYPE_CHECKING:
    from windlass.client.display.waiting import WaitingLine
    from windlass.core.config import Settings
    from windlass.maintenance.diagnosis import CheckResult

_COLUMNS = {"LEVEL": field("level"), "PART": field("id"), "FOUND": field("message")}
_COLUMNS |= {"REMEDY": field("remedy")}


def doctor(
    config: ConfigFile = None,
    data: DataFolder = None,
    output: Annotated[
        OutputFormat, typer.Option("--output", "-o", help="Output format.")
    ] = OutputFormat.TABLE,
) -> None:
    """Examines a server's machine, whether the server runs or not; exit code 1 for a failure."""
    import asyncio

    with reported():
        settings = load(config, {"data_dir": data})
        out = Output(output, quiet=False, color=False)
        with out.waiting("examining the database, the keys and the store") as line:
            found = asyncio.run(_examine(settings, line))
        if output is OutputFormat.TABLE:
            for one in found:
                # Some of it is what agents say of themselves.
                typer.echo(f"{one.level:<4}  {one.part}: {printable(one.message)}")
                if one.remedy:
                    typer.echo(f"      → {one.remedy}")
        else:
            items = [
                {"id": one.part, "level": one.level, "message": one.message, "remedy": one.remedy}
                for one in found
            ]
            out.items(items, _COLUMNS)
        if any(one.level == "fail" for one in found):
            raise typer.Exit(REFUSED)


async def _examine(settings: "Settings", line: "WaitingLine") -> "list[CheckResult]":
    import asyncio
    from importlib.metadata import version

    from windlass.core.telemetry import configure_logging
    from windlass.maintenance.connections import check_connections
    from windlass.maintenance.diagnosis import ok
    from windlass.maintenance.machine import check_machine

    configure_logging(level="ERROR")
    release = ok("release", f"windlass {version('windlass')}")
    connections = await check_connections(settings)
    line.say("examining the machine")
    return [release, *connections, *await asyncio.to_thread(check_machine, settings)]
