"""`windlass audit`."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from windlass.cli.admin import audit_destinations
from windlass.cli.framework.calling import Call, command, group
from windlass.cli.framework.columns import Item, field
from windlass.cli.framework.failures import USAGE, Problem
from windlass.cli.framework.listing import All, Limit, show_list

if TYPE_CHECKING:
    from windlass.audit_chain.exported import FileVerdict

app = group("The organization's audit log.")
app.add_typer(audit_destinations.app, name="destinations")
retention = group("How long events are kept.")
app.add_typer(retention, name="retention")
RETENTION = "/v1/audit_retention"
PATH, CHECKPOINTS = "/v1/audit_events", "/v1/audit_checkpoints"
# An export reads so many at once.
PAGE = 1000


def _time(item: Item) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(item["at_ms"] / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


_COLUMNS = {
    "SEQUENCE": field("sequence"),
    "TIME": _time,
    "USER": field("user_id"),
    "KEY": field("key_id"),
    "ACTION": field("action"),
    "RESOURCE": field("resource"),
    "OUTCOME": field("outcome"),
    "REASON": field("reason"),
    "FROM": field("address"),
}


@command(app, "list")
def list_events(call: Call, limit: Limit = 20, everything: All = False) -> None:
    """Lists changes and attempted changes, newest first; times in UTC."""
    show_list(call, call.client.pages(PATH), _COLUMNS, limit=limit, everything=everything)


@command(app, "export")
def export(call: Call) -> None:
    """Prints signed checkpoints, then all events with their hashes, as JSON lines."""
    from windlass.audit_chain.exported import checkpoint_line, dropped_line, event_line

    # First, so that no checkpoint is beyond the events.
    checkpoints = list(_pages(call, CHECKPOINTS, limit=500))
    if dropped := call.client.get(CHECKPOINTS, limit=1)["dropped"]:
        _write(dropped_line(dropped))
    for checkpoint in checkpoints:
        _write(checkpoint_line(checkpoint["jws"]))
    for event in _pages(call, PATH, limit=PAGE, order="asc"):
        digest = event.pop("hash")
        del event["object"]
        _write(event_line(event, digest))


@command(app, "key")
def key(call: Call) -> None:
    """Prints the public key of the installation's checkpoints, as a JSON Web Key."""
    typer.echo(json.dumps(call.client.get(CHECKPOINTS, limit=1)["public_key"]))


@command(app, "verify")
def verify(
    call: Call,
    file: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False, help="Exported file to verify, without any server."
        ),
    ] = None,
    public_key: Annotated[
        Path | None,
        typer.Option(
            "--key",
            exists=True,
            dir_okay=False,
            metavar="FILE",
            help="Public key that `windlass audit key` printed; for --file.",
        ),
    ] = None,
) -> None:
    """Finds events that were changed, removed or slipped in, and a cut-off end."""
    if (file is None) != (public_key is None):
        raise Problem("--file and --key go together.", USAGE)
    found = _on_server(call) if file is None or public_key is None else _in_file(file, public_key)
    fault = found["fault"]
    if call.out.is_table and fault is None:
        typer.echo(_praise(found))
    elif not call.out.is_table:
        call.out.item(found)
    if fault is not None:
        raise Problem(
            f"Event {fault['sequence']} is not right ({fault['kind']}): {fault['message']}"
        )


def _praise(found: Item) -> str:
    dropped, checkpoint = found["dropped_sequence"], found["checkpoint_sequence"]
    said = f"{found['sequence'] - dropped} events are as they were recorded."
    if dropped:
        said = f"{said} Those up to {dropped} were dropped, as a signed note says."
    if checkpoint:
        return f"{said} A signed checkpoint confirms them up to {checkpoint}."
    return f"{said} There is no signed checkpoint yet."


@command(retention, "show")
def show_retention(call: Call) -> None:
    """Shows how long events are kept, and which were dropped."""
    call.out.item(call.client.get(RETENTION))


@command(retention, "set")
def set_retention(
    call: Call,
    days: Annotated[
        int, typer.Argument(min=0, help="At least the installation's; 0: as long as that.")
    ],
) -> None:
    """Keeps the organization's events longer than the installation does."""
    call.out.item(call.client.put(RETENTION, {"days": days}))


def _pages(call: Call, path: str, *, limit: int, **params: Any) -> Iterator[Any]:
    """Items of a list in pages larger than a screen's."""
    after: str | None = None
    while True:
        asked = params if after is None else {**params, "after": after}
        page = call.client.get(path, limit=limit, **asked)
        yield from page["data"]
        after = page["last_id"]
        if not page["has_more"] or after is None:
            return


def _write(line: bytes) -> None:
    sys.stdout.buffer.write(line)


def _on_server(call: Call) -> Item:
    after, more, found = 0, True, {}
    with call.out.waiting("verifying the audit log"):
        while more:
            found = call.client.get(f"{PATH}/verification", after=after)
            after, more = found["sequence"], found["has_more"]
    return {"id": str(after), **found}


def _in_file(file: Path, public_key: Path) -> Item:
    try:
        from windlass.audit_chain.checkpoints import CheckpointKey
        from windlass.audit_chain.exported import verify_file
    except ImportError as error:
        raise Problem("Signatures need `pip install 'windlass[server]'`.") from error
    try:
        key = CheckpointKey.public(json.loads(public_key.read_bytes()))
    except (ValueError, OSError) as error:
        raise Problem(f"{public_key} holds no public key: {error}.", USAGE) from error
    with file.open("rb") as opened:
        return _told(verify_file(_lines(opened), key))


def _told(verdict: "FileVerdict") -> Item:
    from dataclasses import asdict

    return {"id": str(verdict.sequence), "object": "audit_verification", **asdict(verdict)}


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    """Lines of bounded length; the parts of a longer one are none that an export writes."""
    from windlass.audit_chain.exported import LINE_BYTES

    while line := file.readline(LINE_BYTES):
        yield line
