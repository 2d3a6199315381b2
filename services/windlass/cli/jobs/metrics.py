"""`windlass jobs metrics`: curves on a terminal, rows elsewhere."""

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from windlass.cli.framework import completion
from windlass.cli.framework.calling import Call
from windlass.cli.framework.columns import Columns, field, number
from windlass.cli.framework.failures import USAGE, Problem
from windlass.cli.framework.prefixes import job_id
from windlass.cli.jobs.following import explained_wait, judge, left
from windlass.client.resources.measurements import PLACE, USUAL, Measurements, Panel, Row
from windlass.client.transport.urls import at

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.text import Text

PATH = "/v1/fine_tuning/jobs"
_WIDTH, _HEIGHT = 100, 10
_COLORS = ("cyan", "yellow", "magenta")


def metrics(
    call: Call,
    job: Annotated[
        str,
        typer.Argument(
            metavar="JOB_ID",
            help="Id of a job, or a unique prefix.",
            autocompletion=completion.jobs,
        ),
    ],
    measure: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            "-m",
            metavar="NAME",
            help="Metric, such as loss or grad_norm. May be repeated.",
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show new values until the job ends.")
    ] = False,
) -> None:
    """Plots what a job measured; without a terminal, a row for each step."""
    found = job_id(call.client, job)
    if follow:
        _follow(call, found, measure or [])
        return
    measured = Measurements()
    for event in reversed(list(call.client.pages(at(PATH, found, "events")))):
        measured.add(event)
    _must_be_known(measured, measure or [])
    if call.out.on_terminal:
        call.out.console(stderr=False).print(_curves(call, measured, measure or []))
    else:
        call.out.items(measured.rows, _columns(measured, measure or []))


def _follow(call: Call, job: str, measures: Sequence[str]) -> None:
    measured = Measurements()
    try:
        if call.out.on_terminal:
            _live(call, job, measured, measures)
        else:
            _stream(call, job, measured, measures)
    except KeyboardInterrupt as error:
        raise left(call, job) from error
    judge(call.client.jobs.get(job), told=False)


def _stream(call: Call, job: str, measured: Measurements, measures: Sequence[str]) -> None:
    with explained_wait(call, job, "waiting for the first step") as first_step:
        for event in call.client.jobs.events(job):
            if row := measured.add(event):
                first_step.close()
                call.out.stream(row, _line(row, measures))
                sys.stdout.flush()


def _live(call: Call, job: str, measured: Measurements, measures: Sequence[str]) -> None:
    from rich.console import Group
    from rich.live import Live

    from windlass.client.display.job_activity import watched_activity
    from windlass.client.display.job_bar import JobBar

    bar = JobBar()
    with Live(bar, console=call.out.console(stderr=False)) as view:
        with watched_activity(call.client, job, bar.show):
            for event in call.client.jobs.events(job):
                bar.take(event)
                if measured.add(event):
                    view.update(Group(_curves(call, measured, measures), bar), refresh=True)
        bar.finish()


def _curves(call: Call, measured: Measurements, measures: Sequence[str]) -> "Group":
    from rich.console import Group
    from rich.text import Text

    console = call.out.console(stderr=False)
    panels = (measured.panel(measure) for measure in measures or USUAL)
    parts = [line for panel in panels if panel for line in _panel(console, panel)]
    return Group(*(parts or [Text("The job has no metrics yet.")]))


def _panel(console: "Console", panel: Panel) -> "Iterator[Text]":
    """A legend with the latest values, and the curves below it."""
    from rich.text import Text

    from windlass.client.display.plot import plot

    styles = dict(zip(panel, _COLORS, strict=False))
    latest = [Text(f"{name} {points[-1][1]:.4g}", styles[name]) for name, points in panel.items()]
    yield Text("   ").join(latest)
    width, ascii_only = min(_WIDTH, console.width), console.options.ascii_only
    for line in plot(panel, width=width, height=_HEIGHT, ascii_only=ascii_only):
        runs = ((run.text, styles.get(run.series or "", "")) for run in line)
        yield Text.assemble(*runs, no_wrap=True)


def _columns(measured: Measurements, measures: Sequence[str]) -> Columns:
    names = [name for measure in measures for name in measured.panel(measure)] or measured.names
    return {
        "STEP": field("step"),
        **{name.upper().replace("_", " "): number(name) for name in names},
    }


def _must_be_known(measured: Measurements, measures: Sequence[str]) -> None:
    unknown = [measure for measure in measures if not measured.panel(measure)]
    if unknown and measured.names:
        raise Problem(
            f"The job has no metric {unknown[0]!r}. It has: {', '.join(measured.names)}.", USAGE
        )


def _line(row: Row, measures: Sequence[str]) -> str:
    asked = {part + measure for measure in measures for part in ("", "train_", "valid_")}
    shown = [
        f"{name} {value:.4g}"
        for name, value in sorted(row.items())
        if name not in PLACE and isinstance(value, int | float) and name in (asked or row)
    ]
    return f"step {row['step']}/{row.get('total_steps') or '?'}  {'  '.join(shown)}"
