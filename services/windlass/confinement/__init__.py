"""Walls around what runs for tenants: bubblewrap, a user id, limits, and a filter of system calls.

`confinement` tries what this machine allows; docs/architecture/confinement.md says who sees what.

May import the kernel alone.
"""

from windlass.confinement.launching import Bare, ConfinedCommand, Confinement, Walled
from windlass.confinement.making import Mode, NoConfinement, confinement
from windlass.confinement.processes import exit_code, innermost
from windlass.confinement.python import libraries_version, python_paths
from windlass.confinement.walls import Walls, WorkloadLimits

__all__ = [
    "Bare",
    "ConfinedCommand",
    "Confinement",
    "Mode",
    "NoConfinement",
    "Walled",
    "Walls",
    "WorkloadLimits",
    "confinement",
    "exit_code",
    "innermost",
    "libraries_version",
    "python_paths",
]
