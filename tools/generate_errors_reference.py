"""Writes docs/reference/errors.md from where errors are made in the code."""

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

from windlass.core import errors
from windlass.datasets.errors import Reason
from windlass.gateway.errors import to_http
from windlass.jobs.domain.transitions import error_code

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "docs" / "reference" / "errors.md"
FOLDERS = ("services/windlass", "agent/windlass_agent")
APP: dict[str, Any] = {
    name: kind for name, kind in vars(errors).items() if hasattr(kind, "default_reason")
}
# What is made of another name, or through a function: what it is on the wire.
MADE = {"InputGone": "FailedPrecondition", "kind": "ResourceExhausted"}
MADE |= dict.fromkeys(("RefusedDocument", "_refuse"), "InvalidArgument")
HEAD = """# Errors and their reasons

Made by `tools/generate_errors_reference.py` from the code; a test keeps it true.

An error has OpenAI's body, `{"error": {"message", "type", "param", "code"}}`. `code` is the reason:
it is stable, and programs may rely on it. `message` is for people and may change; `param` names the
field at fault. In gRPC the reason travels in the trailing metadata, as `windlass-reason`. In a
message below, `…` stands for what is filled in.

"""
REASONS = """
## Reasons

One row for each status of a reason. One without a gRPC code is made by the gateway or by an engine.
Some reach agents and services alone. `invalid_…` names a parameter, as `invalid_training_file`.

"""
JOBS = "\n## Ends of a job\n\n`error.code` of a fine-tuning job that failed.\n\n"
DATASETS = (
    "\n## Faults of a dataset\n\nThey stand in parentheses at the end of an error's message.\n\n"
)


class Row(NamedTuple):
    """A reason as one place in the code makes it: by a class, with a status, or as a job's end."""

    reason: str
    kind: str
    message: str


def reference() -> str:
    """The whole page."""
    answers: dict[tuple[str, ...], str] = {}
    jobs: dict[str, str] = {}
    for row in sorted(set(_rows())):
        if row.kind == "job":
            jobs.setdefault(f"`{error_code(row.reason)}`", row.message)
        elif row.kind:
            answers.setdefault((f"`{row.reason}`", *_wire(row.kind, row.reason)), row.message)
    rows = [(*key, said) for key, said in answers.items()]
    page = f"{HEAD}## Default reasons\n\n{_table('reason | HTTP | gRPC | meaning', _defaults())}"
    page += REASONS + _table("reason | HTTP | gRPC | message", rows)
    page += JOBS + _table("code | message", sorted(jobs.items()))
    return page + DATASETS + "".join(f"- `{reason.value}`\n" for reason in Reason)


def statuses() -> dict[str, set[str]]:
    """Returns the HTTP statuses that go with each reason."""
    found: dict[str, set[str]] = {}
    for row in _rows():
        if row.kind not in ("", "job"):
            found.setdefault(row.reason, set()).add(_wire(row.kind, row.reason)[0])
    return found


def _defaults() -> Iterator[tuple[str, ...]]:
    for name, kind in APP.items():
        if name != "AppError":
            meaning = (kind.__doc__ or "").splitlines()[0]
            yield f"`{kind.default_reason}`", *_wire(name, kind.default_reason), meaning


@cache
def _wire(kind: str, reason: str) -> tuple[str, str]:
    """HTTP status and gRPC code."""
    error = APP[kind]("", reason=reason) if kind in APP else None
    return (str(to_http(error).status), error.code.name) if error else (kind, "")


def _rows() -> Iterator[Row]:
    """Every reason that stands in the code of the control plane and of the agent."""
    for path in sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        tree = ast.parse(path.read_text())
        known = {"REASON": ast.Constant("quota_exceeded")} | _assigned(tree.body, 10_000)
        for scope in ast.walk(tree):
            if not isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef | ast.Module):
                continue
            nodes = [*ast.walk(scope)]
            for call in (node for node in nodes if isinstance(node, ast.Call)):
                own = {} if scope is tree else _assigned(nodes, call.lineno)
                if (row := _row(call, known | own)).reason.strip("…"):
                    yield row


def _assigned(nodes: Iterable[ast.AST], line: int) -> dict[str, ast.expr]:
    """The last value of each name before a line."""
    found = [node for node in nodes if isinstance(node, ast.Assign) and node.lineno < line]
    pairs = [(one.targets[0], one.value) for one in sorted(found, key=lambda one: one.lineno)]
    return {name.id: value for name, value in pairs if isinstance(name, ast.Name)}


def _row(call: ast.Call, names: dict[str, ast.expr]) -> Row:
    made = ast.unparse(call.func).rpartition(".")[2]
    kind = MADE.get(made, made)
    said = {keyword.arg: keyword.value for keyword in call.keywords}
    first, second = [*call.args, None, None][:2]
    if kind in ("Failure", "JobFailure", "failure", "died"):
        reason, message = said.get("reason", said.get("code", first)), said.get("message", second)
        kind = "job"
    elif kind == "HttpError":
        reason, message, kind = said.get("code"), second, _status(first)
    elif kind == "ApiError":
        reason, message, kind = said.get("code"), first, _status(said.get("status"))
    else:
        reason, message = said.get("reason") if kind in APP else None, first
    return Row(_text(reason, names), kind, _text(message, names))


def _status(node: ast.expr | None) -> str:
    if isinstance(node, ast.Attribute) and node.attr in HTTPStatus.__members__:
        return str(HTTPStatus[node.attr].value)
    return "400" if node is None else str(node.value) if isinstance(node, ast.Constant) else ""


def _text(node: ast.expr | None, names: dict[str, ast.expr]) -> str:
    """A string as it is written, on one line, with `…` for what is put into it."""
    node = names.get(node.id, node) if isinstance(node, ast.Name) else node
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part, names) for part in node.values)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value.replace("\n", " ")
    return "…" if node is not None else ""


def _table(head: str, rows: Iterable[tuple[str, ...]]) -> str:
    lines = [f"| {head} |", "|" + "---|" * len(head.split("|"))]
    for row in rows:
        cells = (cell.replace("|", "\\|") if cell.strip("… :") else "" for cell in row)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    TARGET.write_text(reference())
