"""`windlass models prefetch` and `prefetches`: files that clusters bring before anyone asks."""

from typing import Annotated

import typer

from windlass.cli.framework import completion
from windlass.cli.framework.calling import Call
from windlass.cli.framework.columns import Columns, field, moment, size
from windlass.cli.framework.failures import Problem
from windlass.cli.framework.listing import All, Limit, show_list

Id = Annotated[str, typer.Argument(metavar="MODEL", autocompletion=completion.models)]
_COLUMNS: Columns = {
    "MODEL": field("model"),
    "CLUSTER": field("cluster_id"),
    "STATE": field("state"),
    "SIZE": size("bytes"),
    "CREATED": moment("created_at"),
    "REASON": field("message"),
}


def prefetch(
    call: Call,
    model: Id,
    clusters: Annotated[
        list[str] | None,
        typer.Option(
            "--cluster",
            metavar="CLUSTER",
            help="A cluster by name or id. May be repeated. Default: all that run engines of the "
            "model and keep models.",
        ),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until the files are there.")
    ] = False,
) -> None:
    """Has clusters bring a model's files, so that its engines start without a download."""
    ids = [call.client.clusters.find(one)["id"] for one in clusters or ()]
    begun = call.client.prefetches.create(model, ids)
    if wait:
        with call.out.waiting("waiting for the files"):
            begun = list(call.client.prefetches.wait(begun))
    show_list(call, iter(begun), _COLUMNS, limit=len(begun), everything=True)
    if failed := [one for one in begun if one["state"] == "failed"]:
        raise Problem(f"{model} could not be brought everywhere: {failed[0]['message']}")


def prefetches(call: Call, limit: Limit = 20, everything: All = False) -> None:
    """Lists the project's prefetches, newest first."""
    show_list(call, call.client.prefetches.list(), _COLUMNS, limit=limit, everything=everything)
