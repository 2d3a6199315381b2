"""Output of `windlass jobs explain`."""

import typer

from windlass.cli.framework.calling import Call
from windlass.cli.framework.columns import Item, field
from windlass.client.display.text import printable


def _verdict(item: Item) -> str:
    if item["chosen"]:
        return "chosen"
    return "fits" if item["fits"] else "does not fit"


def _points(item: Item) -> str:
    points: dict[str, float] = item["points"]
    told = " ".join(f"{name} {value:+g}" for name, value in points.items())
    return f"{sum(points.values()):g} ({told})" if points else ""


_COLUMNS = {
    "CLUSTER": field("name"),
    "VERDICT": _verdict,
    "WHY": field("reason"),
    "POINTS": _points,
}


def show(call: Call, why: Item) -> None:
    """Prints the sentence, then what placement thought of each cluster."""
    if not call.out.is_table:
        call.out.item({"id": why["job_id"], **why})
        return
    from windlass.client.resources.jobs import ENDED

    typer.echo(printable(why["summary"]))
    # Where a job has run is no reason for anything any more.
    if why["verdicts"] and why["state"] not in ENDED:
        typer.echo()
        call.out.items(why["verdicts"], _COLUMNS)
