"""`windlass models fetch` and its kin: models that the server gets from a hub by itself."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from windlass.cli.framework.calling import Call
from windlass.cli.framework.columns import Columns, field, moment, size
from windlass.cli.framework.failures import Problem
from windlass.cli.framework.listing import All, Limit, show_list
from windlass.client.display.text import printable
from windlass.client.transport.urls import at

if TYPE_CHECKING:
    from windlass.client.resources.model_fetches import Fetch

Id = Annotated[str, typer.Argument(metavar="FETCH_ID")]
_COLUMNS: Columns = {
    "ID": field("id"),
    "MODEL": field("model"),
    "SOURCE": field("source"),
    "STATUS": field("status"),
    "FETCHED": size("bytes_done"),
    "OF": size("bytes_total"),
    "CREATED": moment("created_at"),
    "REASON": lambda item: next(
        filter(
            None, (field(name)(item) for name in ("retry_reason", "error.message", "waits_for"))
        ),
        "",
    ),
}


def fetch(
    call: Call,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="hf://user/repository")],
    name: Annotated[
        str, typer.Option("--id", help="Id of the model; default: that of the source.")
    ] = "",
    revision: Annotated[str, typer.Option("--revision", help="Branch, tag or commit.")] = "",
    for_everyone: Annotated[
        bool,
        typer.Option(
            "--global",
            help="Make the model available to all projects (platform administrators only).",
        ),
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until the model is fetched.")
    ] = True,
) -> None:
    """Has the server fetch a base model; the secret `huggingface` opens what is gated."""
    begun = call.client.fetches.create(
        source, name=name, revision=revision, for_everyone=for_everyone
    )
    if not wait:
        call.out.item(begun)
        return
    try:
        ended = _followed(call, begun)
    except KeyboardInterrupt:
        call.out.note(f"The fetch continues; `windlass models cancel-fetch {begun['id']}` ends it.")
        raise
    if ended["status"] != "succeeded":
        error = ended["error"] or {"message": "The fetch was cancelled."}
        raise Problem(f"{source} could not be fetched: {error['message']}")
    call.out.item(call.client.get(at("/v1/models", ended["model"])))


def _followed(call: Call, begun: "Fetch") -> "Fetch":
    from windlass.client.resources.model_fetches import ENDED

    last = begun
    looks = _told(call, call.client.fetches.follow(begun["id"]))
    with call.out.waiting("waiting for the hub's list of files") as line:
        for last in looks:
            if words := last.get("waits_for"):
                line.say(words)
            if last["bytes_total"]:
                break
    if last["status"] in ENDED:
        return last
    with call.out.transfer("Fetched", last["bytes_total"] or 0) as seen:
        seen(last["bytes_done"])
        for now in looks:
            seen(now["bytes_done"] - last["bytes_done"])
            last = now
            if last["bytes_done"] >= last["bytes_total"]:
                break
    with call.out.waiting("waiting for the server to check the files"):
        for now in looks:
            last = now
    return last


def _told(call: Call, looks: "Iterator[Fetch]") -> "Iterator[Fetch]":
    """The same, with a note for each try that failed."""
    reason = ""
    for fetch in looks:
        if fetch.get("retry_reason") and fetch["retry_reason"] != reason:
            call.out.note(printable(fetch["retry_reason"]))
        reason = fetch.get("retry_reason") or ""
        yield fetch


def fetches(call: Call, limit: Limit = 20, everything: All = False) -> None:
    """Lists the project's fetches, newest first."""
    show_list(call, call.client.fetches.list(), _COLUMNS, limit=limit, everything=everything)


def cancel_fetch(call: Call, fetch_id: Id) -> None:
    """Ends a fetch and removes what it brought."""
    call.out.item(call.client.fetches.cancel(fetch_id))
