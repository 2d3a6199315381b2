"""Labels and resources of Kubernetes stand in `windlass.kubernetes` alone."""

import ast
from collections.abc import Iterator
from pathlib import Path

from windlass.kubernetes import labels, resources

ROOT = Path(__file__).parents[3]
FOLDERS = (ROOT / "services" / "windlass", ROOT / "agent" / "windlass_agent")
HOME = ROOT / "services" / "windlass" / "kubernetes"
WORDS = sorted(
    {
        value
        for module in (labels, resources)
        for value in vars(module).values()
        if isinstance(value, str) and "/" in value and " " not in value
    }
)


def literals(path: Path) -> Iterator[str]:
    """The strings of a module that are no prose."""
    for node in ast.walk(ast.parse(path.read_text())):
        value = node.value if isinstance(node, ast.Constant) else None
        if isinstance(value, str) and not any(map(str.isspace, value)):
            yield value


def test_no_other_module_writes_them_out() -> None:
    assert {labels.COMPLETION_INDEX, labels.JOB_UID, resources.NVIDIA_GPU} <= set(WORDS)
    found = [
        (str(path.relative_to(ROOT)), text)
        for folder in FOLDERS
        for path in folder.rglob("*.py")
        if HOME not in path.parents
        for text in literals(path)
        if any(word in text for word in WORDS)
    ]
    assert found == []
