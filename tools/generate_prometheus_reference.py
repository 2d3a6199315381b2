"""Writes docs/reference/prometheus.md from the metrics that the code declares."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "docs" / "reference" / "prometheus.md"
KINDS = ("Counter", "Gauge", "Histogram", "Summary")
PARTS = {
    "services/windlass": "Processes of the control plane, at `/metrics` of the operators' listener",
    "agent/windlass_agent": "The built-in engine, at its own `/metrics`",
}
HEAD = """# Metrics of processes

Made by `tools/generate_prometheus_reference.py` from the code; a test keeps it true.

They are in Prometheus' format. A histogram has `_bucket`, `_sum` and `_count`. Where the listener
is: [operations](configuration.md#operations). What a job measures is in [metrics of a
job](metrics.md). `process_…` and `python_…` come from the Prometheus client.
"""


def reference() -> str:
    """The whole page."""
    parts = [HEAD.rstrip()]
    for folder, title in PARTS.items():
        parts += [f"\n## {title}\n", "| metric | type | labels | what it is |", "|---|---|---|---|"]
        parts += sorted(_rows(ROOT / folder))
    return "\n".join(parts) + "\n"


def _rows(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*.py"):
        text = path.read_text()
        if "prometheus_client" not in text:
            continue
        for call in (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)):
            kind = ast.unparse(call.func)
            if kind in KINDS and call.args and isinstance(call.args[0], ast.Constant):
                name, meaning, *rest = (ast.literal_eval(argument) for argument in call.args)
                labels = ", ".join(f"`{label}`" for label in (rest[0] if rest else ()))
                yield f"| `{name}` | {kind.lower()} | {labels} | {meaning} |"


if __name__ == "__main__":
    TARGET.write_text(reference())
