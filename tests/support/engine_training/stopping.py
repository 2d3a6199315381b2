"""Installed as `sitecustomize` beside an engine: stops its training worker at a named point, once.

A file `stop-at` beside the engine's folders says where: `POINT SIGNAL COUNT`. The plugin itself has
no such points.
"""

import functools
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

POINTS = {
    "step-begun": ("weights.step_counter", "StepCounter.begin"),
    "weight-applied": ("optimizers.in_backward", "InBackwardOptimizer._apply"),
    "state-written": ("optimizers.saving", "save_state"),
    "progress-written": ("run_folder", "RunFolder.write_progress"),
    "version-written": ("checkpoints.checkpoint", "BlockCheckpoint.write"),
    "version-settled": ("checkpoints.checkpoint", "BlockCheckpoint.settle"),
}
"""Where each point is: a module and what in it has just returned."""
FILE = "stop-at"
_called: Counter[str] = Counter()


def install(site: Path) -> None:
    """Puts this module where an engine's interpreters import it first."""
    (site / "sitecustomize.py").write_text(Path(__file__).read_text())


def stop_at(private: Path, point: str, number: int, signal_name: str = "SIGKILL") -> None:
    """Asks that the worker which runs, or the next, stops when a point was passed so often."""
    assert point in POINTS
    (private / FILE).write_text(f"{point} {signal_name} {number}")


def is_stopped(process: int) -> bool:
    """Whether a process was stopped and neither killed nor continued since."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def _stopping(point: str, function: Callable[..., Any]) -> Callable[..., Any]:
    path = Path(os.environ["WINDLASS_VLLM_FOLDER"]) / FILE

    @functools.wraps(function)
    def stopping(*positional: Any, **named: Any) -> Any:
        found = function(*positional, **named)
        if not path.exists():
            return found
        wanted, name, number = path.read_text().split()
        _called[point] += wanted == point
        if wanted == point and _called[point] == int(number):
            path.unlink()
            os.kill(os.getpid(), getattr(signal, name))
        return found

    return stopping


def _patch() -> None:
    from importlib import import_module

    for point, (module, path) in POINTS.items():
        owner: Any = import_module(f"windlass_vllm.{module}")
        *classes, name = path.split(".")
        for one in classes:
            owner = getattr(owner, one)
        setattr(owner, name, _stopping(point, getattr(owner, name)))


if "windlass_vllm.training.worker" in sys.orig_argv:
    _patch()
