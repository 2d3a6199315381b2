"""Writes docs/reference/prometheus.md from the metrics that `windlass.metrics` declares."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "docs" / "reference" / "prometheus.md"
KINDS = {
    "Counter": "counter",
    "Gauge": "gauge",
    "Histogram": "histogram",
    "UnlockedCounter": "counter",
    "UnlockedHistogram": "histogram",
}
DECLARATIONS = ROOT / "services" / "windlass" / "metrics"
# On a registry of its own, in a process that knows nothing of services.
ENGINE = ROOT / "agent" / "windlass_agent" / "engines" / "builtin" / "generation" / "metrics.py"
HEAD = """# Metrics of processes

Made by `tools/generate_prometheus_reference.py` from the code; a test keeps it true.

They are in Prometheus' format. A histogram has `_bucket`, `_sum` and `_count`. [Scrape the
metrics](../how-to/scrape-the-metrics.md) says where they are. What a job measures is in [metrics
of a job](metrics.md). `process_…` and `python_…` come from the Prometheus client. A process shows
the parts that it runs: all of them with the target `all`.
"""


def reference() -> str:
    """The whole page."""
    parts = [HEAD.rstrip()]
    files = sorted(DECLARATIONS.glob("[!_]*.py"), key=lambda path: path.stem)
    files.sort(key=lambda path: path.stem != "process")
    for path in (*files, ENGINE):
        tree = ast.parse(path.read_text())
        if not (rows := sorted(_rows(tree))):
            continue
        title = "The built-in engine" if path == ENGINE else ast.get_docstring(tree)
        parts += [f"\n## {title}\n", "| metric | type | labels | what it is |", "|---|---|---|---|"]
        parts += rows
    return "\n".join(parts) + "\n"


def _rows(tree: ast.Module) -> Iterator[str]:
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        if kind := KINDS.get(ast.unparse(call.func)):
            name, meaning, *rest = (ast.literal_eval(argument) for argument in call.args)
            labels = ", ".join(f"`{label}`" for label in (rest[0] if rest else ()))
            yield f"| `{name}` | {kind} | {labels} | {meaning} |"


if __name__ == "__main__":
    TARGET.write_text(reference())
