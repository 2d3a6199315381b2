"""`windlass tuning`: what loops of the tinker SDK have made."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from windlass.cli.framework.calling import Call, Yes, command, group
from windlass.cli.framework.columns import Item, field
from windlass.cli.framework.failures import Problem
from windlass.cli.framework.listing import All, Limit, show_list
from windlass.cli.tuning.seats import seats, turns
from windlass.cli.tuning.simulating import simulate_turns
from windlass.client.transport.urls import at

app = group("What loops of the tinker SDK have made: runs, checkpoints and sessions.")
runs = group("Models that are trained step by step.")
checkpoints = group("What models were at some time.")
sessions = group("Clients, and what is theirs.")
for name, noun in {
    "runs": runs, "checkpoints": checkpoints, "sessions": sessions, "seats": seats, "turns": turns,
}.items():  # fmt: skip
    app.add_typer(noun, name=name)
command(app, "simulate")(simulate_turns)

PATH = "/api/v1"
RUNS, SESSIONS = f"{PATH}/training_runs", f"{PATH}/sessions"
PAGE = 100
# A log may be long.
REPLAY_SECONDS = 6 * 3600.0
RunId = Annotated[str, typer.Argument(metavar="RUN_ID")]
SessionId = Annotated[str, typer.Argument(metavar="SESSION_ID")]
TinkerPath = Annotated[str, typer.Argument(metavar="TINKER_PATH")]
_RUN_COLUMNS = {
    "ID": field("id"),
    "MODEL": field("base_model"),
    "RANK": field("lora_rank"),
    "STATE": lambda item: "lost" if item["corrupted"] else "",
    "LAST REQUEST": field("last_request_time"),
}
_CHECKPOINT_COLUMNS = {
    "PATH": field("id"),
    "OF": field("checkpoint_type"),
    "BYTES": field("size_bytes"),
    "MADE": field("time"),
    "UNTIL": field("expires_at"),
}


def _state(item: Item) -> str:
    status = item["status"]
    if status is None:
        return "expired"
    return str(status["reason"]["type"] if "reason" in status else status["type"])


_SESSION_COLUMNS = {
    "ID": field("id"),
    "NAME": field("display_name"),
    "STATE": _state,
    "CHECKPOINTS": field("checkpoints_count"),
    "CREATED": field("created_at"),
}


@command(app, "replay")
def replay_run(
    call: Call,
    run_id: RunId,
    to: Annotated[
        str,
        typer.Option(
            "--to", metavar="OP", help="Number or id of the last operation; default: all."
        ),
    ] = "",
) -> None:
    """Computes what is in a run's log again, and compares it with what was answered, bit by bit.

    Fails where something differs, or nothing could be compared. The run is not touched.
    """
    path = at(RUNS, run_id) + "/replay"
    found = call.client.request("POST", path, json={"operation": to}, timeout=REPLAY_SECONDS)
    call.out.item({"id": found["training_run_id"], **found})
    if first := found["first_difference"]:
        place = first["seq_id"] or first["request_id"]
        raise Problem(
            f"Operation {place} ({first['kind']}) differs in {first['what']}: recorded "
            f"{first['recorded']}, computed {first['computed']}."
        )
    if not found["agrees"]:
        raise Problem("Nothing could be compared.")


@command(app, "fork")
def fork_run(
    call: Call,
    run_id: RunId,
    at_operation: Annotated[
        str,
        typer.Option("--at", metavar="OP", help="Number or id of the last operation that it has."),
    ],
    name: Annotated[str, typer.Option(help="Of the session and of the first checkpoint.")] = "fork",
) -> None:
    """Begins another run with what a run was after an operation; shows the path to go on from."""
    path = at(RUNS, run_id) + "/fork"
    body = {"operation": at_operation, "name": name}
    found = call.client.request("POST", path, json=body, timeout=REPLAY_SECONDS)
    call.out.item({"id": found["tinker_path"], **found})


@command(runs, "list")
def list_runs(call: Call, limit: Limit = 20, everything: All = False) -> None:
    """Lists runs, newest first."""
    found = _listed(call, RUNS, "training_runs", "training_run_id")
    show_list(call, found, _RUN_COLUMNS, limit=limit, everything=everything)


@command(runs, "show")
def show_run(call: Call, run_id: RunId) -> None:
    """Shows one run."""
    call.out.item(_named(call.client.get(at(RUNS, run_id)), "training_run_id"))


@command(runs, "delete")
def delete_run(call: Call, run_id: RunId, yes: Yes = False) -> None:
    """Deletes a run; what waits for it ends, its checkpoints stay."""
    call.confirm(f"Delete run {run_id}?", yes)
    call.client.post(f"{PATH}/unload_model", {"model_id": run_id})
    call.out.note(f"Deleted {run_id}.")


@command(checkpoints, "list")
def list_checkpoints(
    call: Call,
    run: Annotated[str, typer.Option(help="Run whose checkpoints to list; default: all.")] = "",
    limit: Limit = 20,
    everything: All = False,
) -> None:
    """Lists checkpoints, newest first."""
    path = at(RUNS, run) + "/checkpoints" if run else f"{PATH}/checkpoints"
    found = _listed(call, path, "checkpoints", "tinker_path")
    show_list(call, found, _CHECKPOINT_COLUMNS, limit=limit, everything=everything)


@command(checkpoints, "show")
def show_checkpoint(call: Call, path: TinkerPath) -> None:
    """Shows the weights of a checkpoint."""
    found = call.client.post(f"{PATH}/weights_info", {"tinker_path": path})
    call.out.item({"id": path, **found})


@command(checkpoints, "register")
def register_checkpoint(
    call: Call,
    path: TinkerPath,
    suffix: Annotated[str, typer.Option(help="End of the model's name.")],
    base: Annotated[
        str, typer.Option(help="The project's model with the weights of the run's base model.")
    ] = "",
) -> None:
    """Makes a copy of a sampler's checkpoint a model, which chats and is served like any other."""
    body = {"suffix": suffix, "base_model": base}
    made = call.client.post(_checkpoint(path) + "/model", body)
    call.out.item({"id": made["model"]})


@command(checkpoints, "delete")
def delete_checkpoint(call: Call, path: TinkerPath, yes: Yes = False) -> None:
    """Deletes a checkpoint."""
    found = _checkpoint(path)
    call.confirm(f"Delete checkpoint {path}?", yes)
    call.client.delete(found)
    call.out.note(f"Deleted {path}.")


@command(checkpoints, "publish")
def publish_checkpoint(call: Call, path: TinkerPath) -> None:
    """Lets the organization's other projects load, sample and download a checkpoint."""
    call.client.post(_checkpoint(path) + "/publish", {})
    call.out.note(f"Published {path}.")


@command(checkpoints, "unpublish")
def unpublish_checkpoint(call: Call, path: TinkerPath) -> None:
    """Keeps a checkpoint for its project again; what others have copied stays theirs."""
    call.client.delete(_checkpoint(path) + "/publish")
    call.out.note(f"{path} is its project's alone.")


@command(checkpoints, "copy")
def copy_checkpoint(
    call: Call,
    path: TinkerPath,
    seconds: Annotated[
        int,
        typer.Option("--ttl-seconds", min=0, help="Seconds that it is kept; 0: for ever."),
    ] = 0,
) -> None:
    """Copies a checkpoint that the project may read into a run of its own."""
    body = {"source_path": path, "ttl_seconds": seconds or None}
    made = call.client.post(f"{PATH}/copy_weights", body)
    call.out.item({"id": made["tinker_path"]})


@command(sessions, "list")
def list_sessions(
    call: Call,
    name: Annotated[str, typer.Option(help="Words of the name.")] = "",
    limit: Limit = 20,
    everything: All = False,
) -> None:
    """Lists sessions of the project, newest first."""
    found = _searched(call, {"display_name": name} if name else {})
    show_list(call, found, _SESSION_COLUMNS, limit=limit, everything=everything)


@command(sessions, "show")
def show_session(call: Call, session_id: SessionId) -> None:
    """Shows one session with its runs and samplers."""
    call.out.item({"id": session_id, **call.client.get(at(SESSIONS, session_id))})


@command(sessions, "end")
def end_session(call: Call, session_id: SessionId, yes: Yes = False) -> None:
    """Ends a session as interrupted, and with it its runs; checkpoints stay."""
    call.confirm(f"End session {session_id}?", yes)
    reason = {"reason": {"type": "interrupted"}, "detail": "Ended by the command line."}
    call.client.post(at(SESSIONS, session_id) + "/finish", reason)
    call.out.note(f"Ended {session_id}.")


def _checkpoint(path: str) -> str:
    """The route of a checkpoint by its tinker:// path."""
    run_id, _, name = path.removeprefix("tinker://").partition("/")
    kind, _, rest = name.partition("/")
    if not (run_id and kind and rest):
        raise Problem("A path is tinker://RUN_ID/weights/NAME.")
    return at(RUNS, run_id, "checkpoints", kind, rest)


def _named(item: Item, key: str) -> Item:
    return {"id": item[key], **{name: value for name, value in item.items() if name != key}}


def _listed(call: Call, path: str, items: str, key: str) -> Iterator[Item]:
    offset = 0
    while page := call.client.get(path, limit=PAGE, offset=offset)[items]:
        yield from (_named(item, key) for item in page)
        offset += len(page)


def _searched(call: Call, query: dict[str, Any]) -> Iterator[Item]:
    cursor: dict[str, Any] = {}
    while True:
        body = {"owner": {"type": "accessible"}, "limit": PAGE, **query, **cursor}
        found = call.client.post(f"{SESSIONS}/search", body)
        yield from (_named(item, "session_id") for item in found["sessions"])
        if found["next_cursor"] is None:
            return
        cursor = {"cursor": found["next_cursor"]}
