"""Tables of what a change of a role would do."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from windlass.cli.framework.calling import Call
from windlass.cli.framework.columns import Item, field, moment
from windlass.client.transport.urls import at

Preview = Annotated[
    bool,
    typer.Option("--preview", help="Change nothing; show who and which keys would gain or lose."),
]
# Of people, of whom each costs the server a look at all their roles.
MOST_PEOPLE = 1000
_PAGE = 100
_EVERYWHERE = "the organization"
_PEOPLE = {
    "USER": field("user_id"),
    "BY": field("by"),
    "UNTIL": moment("until"),
    "IN": field("place"),
    "GAINS": lambda row: " ".join(row["gains"]),
    "LOSES": lambda row: " ".join(row["losses"]),
}
_KEYS = {
    "KEY": field("key_id"),
    "NAME": field("name"),
    "VALUE": field("redacted"),
    "OWNER": field("user_id"),
    "GAINS": lambda key: " ".join(key["gains"]),
    "LOSES": lambda key: "everything" if key["ends"] else " ".join(key["losses"]),
}


def show_preview(call: Call, where: str, role_id: str, **change: Any) -> None:
    """Prints what a change of a role would do; changes nothing."""
    path = at(f"{where}/roles", role_id, "preview")
    holders: list[Item] = []
    keys: dict[str, Item] = {}
    after, more, more_keys = "", True, False
    while more and len(holders) < MOST_PEOPLE:
        asked = {"limit": _PAGE, "after": after}
        page = call.client.request("POST", path, json=change, params=asked)
        holders += page["data"]
        keys |= {key["key_id"]: key for key in page["keys"]}
        after, more = page["last_id"], page["has_more"]
        more_keys = more_keys or page["has_more_keys"]
    if not call.out.is_table:
        call.out.item({"id": role_id, "holders": holders, "keys": list(keys.values())})
    else:
        call.out.items([row for one in holders for row in _rows(one)], _PEOPLE)
        if keys:
            call.out.gap()
            call.out.items(list(keys.values()), _KEYS)
    if more:
        call.out.note(f"Only the first {len(holders)} people are shown.")
    if more_keys:
        call.out.note("These people have more keys than were looked at.")
    call.out.note("Nothing was changed.")


def _rows(holder: Item) -> Iterator[Item]:
    sources = holder["by"]
    ends = [source["ends_at"] for source in sources]
    said = {
        "user_id": holder["user_id"],
        "by": ", ".join(source["group_id"] or "themselves" for source in sources),
        # The last of several ends.
        "until": max(ends) if ends and all(ends) else None,
    }
    nothing: Item = {"project_id": None, "gains": [], "losses": []}
    for place in holder["places"] or [nothing]:
        changed = place["gains"] or place["losses"]
        shown = (place["project_id"] or _EVERYWHERE) if changed or holder["places"] else ""
        yield {**said, "place": shown, "gains": place["gains"], "losses": place["losses"]}
