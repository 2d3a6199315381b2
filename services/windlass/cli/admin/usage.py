"""`windlass usage`."""

import time
from enum import StrEnum
from typing import Annotated

import typer

from windlass.cli.framework.calling import Call
from windlass.cli.framework.columns import Item, field, moment
from windlass.cli.framework.listing import All, Limit, show_list
from windlass.cli.framework.values import seconds

GROUPS = ("project_id", "api_key_id", "user_id", "model", "kind")
Names = list[str]


class Width(StrEnum):
    """The width of a bucket of usage."""

    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"


def usage(
    call: Call,
    since: Annotated[
        int,
        typer.Option(
            parser=seconds,
            metavar="DURATION",
            help="Period to show, up to now; default: 7d.",
            show_default=False,
        ),
    ] = 7 * 86400,
    width: Annotated[Width, typer.Option(help="Width of a time bucket, in UTC.")] = Width.DAY,
    by: Annotated[
        Names | None,
        typer.Option(help=f"Columns to group by: {', '.join(GROUPS)}; default: model."),
    ] = None,
    model: Annotated[Names | None, typer.Option(help="Only usage of this model.")] = None,
    in_project: Annotated[
        Names | None, typer.Option("--in", help="Only usage of this project.")
    ] = None,
    limit: Limit = 100,
    everything: All = False,
) -> None:
    """Shows tokens and requests in buckets of time."""
    # The server never adds up kinds.
    groups = list(dict.fromkeys(["kind", *(by or ["model"])]))
    for name in groups:
        if name not in GROUPS:
            raise typer.BadParameter(f"--by must be one of {', '.join(GROUPS)}.")
    question = {
        "start_time": int(time.time()) - since,
        "bucket_width": width.value,
        "group_by": groups,
        "models": model or "",
        "project_ids": in_project or "",
    }
    columns = {
        "FROM": moment("start_time"),
        **{name.upper(): field(name) for name in groups},
        "REQUESTS": field("num_model_requests"),
        "INPUT": field("input_tokens"),
        "OUTPUT": field("output_tokens"),
        "CACHED": field("input_cached_tokens"),
        "REASONING": field("output_reasoning_tokens"),
        "DEVICE SECONDS": field("device_seconds"),
        "ESTIMATED": field("num_estimated_requests"),
    }
    show_list(call, _rows(call, question), columns, limit=limit, everything=everything)


def _rows(call: Call, question: Item) -> list[Item]:
    rows: list[Item] = []
    page = ""
    while True:
        answer = call.client.get("/v1/usage", **question, page=page)
        rows += [
            {"id": str(bucket["start_time"]), "start_time": bucket["start_time"], **result}
            for bucket in answer["data"]
            for result in bucket["results"]
        ]
        page = answer.get("next_page") or ""
        if not answer.get("has_more") or not page:
            return rows
