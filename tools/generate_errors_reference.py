"""Writes docs/reference/errors.md from the catalogue of reasons."""

from collections.abc import Iterable
from pathlib import Path

from windlass.core.reasons import JOB_ENDS, REASONS, ErrorReason
from windlass.datasets.errors import MEANINGS
from windlass.gateway.errors import to_http

TARGET = Path(__file__).parents[1] / "docs" / "reference" / "errors.md"
HEAD = """# Errors and their reasons

Made by `tools/generate_errors_reference.py` from `services/windlass/core/reasons`; tests keep both
true.

An error has OpenAI's body, `{"error": {"message", "type", "param", "code"}}`. `code` is the reason:
it is stable, and programs may rely on it. `message` is for people and may change; `param` names the
field at fault. In gRPC the reason travels in the trailing metadata, as `windlass-reason`.

## Reasons

Some reach agents and services alone. One without a gRPC code is made by the gateway or by the
built-in engine; another engine may answer with codes of its own.

"""
JOBS = """
## Ends of a job

`error.code` of a fine-tuning job that failed. A job whose input was refused ends with one of the
reasons above.

"""
DATASETS = """
## Faults of a dataset

They stand in parentheses at the end of an error's message.

"""


def reference() -> str:
    """The whole page."""
    reasons = ((name, *_wire(name, REASONS[name])) for name in sorted(REASONS))
    page = HEAD + _table("reason | HTTP | gRPC | meaning", reasons)
    page += JOBS + _table("code | meaning", sorted(JOB_ENDS.items()))
    return page + DATASETS + _table("fault | meaning", MEANINGS.items())


def statuses(name: str, reason: ErrorReason) -> set[int]:
    """The HTTP statuses that a reason goes with."""
    return {*reason.statuses, *(to_http(kind("", reason=name)).status for kind in reason.errors)}


def _wire(name: str, reason: ErrorReason) -> tuple[str, str, str]:
    http = ", ".join(map(str, sorted(statuses(name, reason))))
    return http, ", ".join(kind.code.name for kind in reason.errors), reason.meaning


def _table(head: str, rows: Iterable[tuple[str, ...]]) -> str:
    lines = [f"| {head} |", "|" + "---|" * len(head.split("|"))]
    lines += (" | ".join((f"| `{name}`", *cells)) + " |" for name, *cells in rows)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    TARGET.write_text(reference())
