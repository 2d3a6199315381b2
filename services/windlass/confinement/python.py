"""The files that a Python of ours consists of, so that a process within walls can start."""

import sys
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

_PACKAGES = ("windlass", "windlass_agent")
_PLUGINS = "windlass.llm_backends"
_SITES = ("site-packages", "dist-packages")


@cache
def python_paths(*others: Path | None) -> tuple[Path, ...]:
    """Programs and libraries of this Python, of our packages and plug-ins, and of `others`.

    `others` are interpreters. Never a whole `sys.path`: it may name the working folder.
    """
    found = [path for path in map(Path, sys.path) if path.name in _SITES]
    for prefix in {Path(sys.prefix), Path(sys.base_prefix)}:
        found += _of_prefix(prefix)
    for python in filter(None, others):
        found += _of_prefix(python.parent.parent)
        found += _of_prefix(python.resolve().parent.parent)
    plugins = {entry.module.partition(".")[0] for entry in entry_points(group=_PLUGINS)}
    for package in (*_PACKAGES, *sorted(plugins)):
        spec = find_spec(package)
        found += [Path(place) for place in (spec and spec.submodule_search_locations) or ()]
        if spec and spec.origin and not spec.submodule_search_locations:
            found.append(Path(spec.origin))
    return tuple(dict.fromkeys(path.absolute() for path in found if path.exists()))


def libraries_version() -> int:
    """A number that changes when a package is installed, replaced or removed.

    Installers write a folder of metadata for each version into the folder of all packages.
    """
    sites = [path for path in map(Path, sys.path) if path.name in _SITES]
    return hash(tuple(path.stat().st_mtime_ns for path in sites if path.exists()))


def _of_prefix(prefix: Path) -> list[Path]:
    """Returns the folders of an interpreter, not its whole prefix, which may hold other things."""
    # Triton compiles its launchers against the headers.
    return [prefix / name for name in ("bin", "lib", "lib64", "include", "pyvenv.cfg")]
