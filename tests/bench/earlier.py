"""An earlier commit of ours as the peer of a figure, on the packages of this environment."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def earlier(commit: str) -> Path | None:
    """Unpacks a commit into `build/`; None, with the reason printed, where it is not known."""
    folder = ROOT / "build" / "earlier" / commit
    if not folder.exists():
        command = ["git", "-C", str(ROOT), "archive", commit, "services", "agent"]
        archive = subprocess.run(command, capture_output=True)
        if archive.returncode != 0:
            print(f"no peer: {archive.stderr.decode().strip()}", file=sys.stderr)
            return None
        folder.mkdir(parents=True)
        subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    return folder


@contextmanager
def served_by(folder: Path) -> Iterator[None]:
    """Servers that start in the block are of that commit."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(str(folder / part) for part in ("services", "agent"))
    try:
        yield
    finally:
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before
