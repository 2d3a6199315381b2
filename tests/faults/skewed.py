"""Processes whose clock is wrong: Python's own view of it, which is what our code reads.

TLS reads the true clock still, and so does gRPC, which hands deadlines to a library in C.
"""

from pathlib import Path

# What Python imports at its start, wherever PYTHONPATH has it.
_SITE = """
import sys
import time

def shifted(clock, by):
    def wrong():
        asking = sys._getframe(1).f_globals.get("__name__", "")
        return clock() if asking.startswith("grpc.") else clock() + by
    return wrong

time.time = shifted(time.time, {seconds})
time.time_ns = shifted(time.time_ns, {seconds} * 10**9)
"""


def clock(folder: Path, seconds: int, *paths: Path) -> dict[str, str]:
    """The environment of a process that is so many seconds ahead, or behind."""
    site = folder / f"clock{seconds:+d}"
    site.mkdir(exist_ok=True)
    (site / "sitecustomize.py").write_text(_SITE.format(seconds=seconds))
    return {"PYTHONPATH": ":".join(map(str, (site, *paths)))}
