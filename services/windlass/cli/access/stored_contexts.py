"""`windlass context`: the stored servers."""

from dataclasses import replace
from typing import Annotated

import typer

from windlass.cli.framework import completion, context
from windlass.cli.framework.calling import Call, Yes, command, group
from windlass.cli.framework.columns import field
from windlass.cli.framework.failures import USAGE, Problem

app = group("Stored servers and credentials.")
Name = Annotated[str, typer.Argument(autocompletion=completion.contexts)]
_COLUMNS = {name.upper(): field(name) for name in ("current", "id", "base_url", "project")}


@command(app, "list")
def list_contexts(call: Call) -> None:
    """Lists the stored contexts; the one in use is marked."""
    stored = context.load()
    items = [
        {
            "id": name,
            "current": "*" if name == stored.current else "",
            "base_url": entry.base_url,
            "project": entry.project or None,
        }
        for name, entry in stored.known.items()
    ]
    call.out.items(items, _COLUMNS)


@command(app, "use")
def use(call: Call, name: Name) -> None:
    """Makes a context the one in use."""
    stored = context.load()
    _require(stored, name)
    context.save(replace(stored, current=name))
    call.out.note(f"In use: {name} ({stored.known[name].base_url}).")


@command(app, "delete")
def delete(call: Call, name: Name, yes: Yes = False) -> None:
    """Forgets a context and its key; the key itself stays valid."""
    stored = context.load()
    _require(stored, name)
    call.confirm(f"Forget context {name}?", yes)
    rest = {key: entry for key, entry in stored.known.items() if key != name}
    context.save(context.Contexts("" if stored.current == name else stored.current, rest))
    call.out.note(f"Forgot context {name}.")


def _require(stored: context.Contexts, name: str) -> None:
    if name not in stored.known:
        raise Problem(f"No context {name!r}.", USAGE)
