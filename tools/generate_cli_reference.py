"""Writes docs/reference/cli.md from the command itself."""

from pathlib import Path
from typing import Any

import typer
from typer.main import get_command

from windlass.cli.main import EPILOG, app

TARGET = Path(__file__).parents[1] / "docs" / "reference" / "cli.md"
COMMON = {
    *("output", "quiet", "no_color", "base_url", "api_key", "context_name", "data"),
    *("project", "organization"),
}
HEAD = f"""# The `windlass` command

Made by `tools/generate_cli_reference.py` from the command itself; a test keeps it true.
How to use it: [how-to](../how-to/use-the-command.md).

{EPILOG}
Data goes to stdout; prose, progress and errors go to stderr.

"""


def reference() -> str:
    """The whole page."""
    root: Any = get_command(app)
    leaves = [("windlass", *path) for path in _paths(root)]
    shared = _rows(_find(root, ("jobs", "list")), "windlass jobs list", only=COMMON)
    parts = [HEAD + "## Options of every command that talks to a server\n\n" + _table(shared)]
    noun = ""
    for path in leaves:
        if len(path) > 2 and path[1] != noun:
            noun = path[1]
            parts.append(f"## windlass {noun}\n\n{_find(root, (noun,)).help}\n")
        parts.append(_section(_find(root, path[1:]), path))
    return "\n".join(parts)


def _paths(group: Any) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for name, command in group.commands.items():
        below = _paths(command) if hasattr(command, "commands") else [()]
        found += [(name, *rest) for rest in below]
    return sorted(found, key=lambda path: (len(path), path))


def _find(root: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        root = root.commands[name]
    return root


def _section(command: Any, path: tuple[str, ...]) -> str:
    name = " ".join(path)
    usage = " ".join([name, *command.collect_usage_pieces(_context(command, name))])
    level = "##" if len(path) == 2 else "###"
    rows = _rows(command, name, leave_out=_common(command))
    table = f"\n{_table(rows)}" if rows else ""
    return f"{level} {name}\n\n{command.help}\n\n```\n{usage}\n```\n{table}"


def _common(command: Any) -> set[str]:
    """Returns the common options of a command that has them all; `serve` has its own `--data`."""
    names = {param.name for param in command.params}
    return COMMON if names >= COMMON else set()


def _rows(
    command: Any, name: str, *, only: set[str] | None = None, leave_out: set[str] | None = None
) -> list[tuple[str, str]]:
    context = _context(command, name)
    return [
        record
        for param in command.params
        if (only is None or param.name in only) and param.name not in (leave_out or ())
        if (record := param.get_help_record(context)) and record[0] != "--help"
    ]


def _context(command: Any, name: str) -> Any:
    return typer.Context(command, info_name=name)


def _table(rows: list[tuple[str, str]]) -> str:
    cells = [(left, right.replace("|", "\\|")) for left, right in rows]
    lines = [f"| `{left.replace('|', chr(92) + '|')}` | {right} |" for left, right in cells]
    return "\n".join(["| Option | Meaning |", "|---|---|", *lines, ""])


if __name__ == "__main__":
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(reference())
