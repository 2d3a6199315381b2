"""Walls around what runs for tenants: bubblewrap, a user id, limits, and a filter of system calls.

`confinement` tries what this machine allows; docs/architecture/confinement.md says who sees what.
"""

from windlass.confinement.launching import Bare, Confinement, Launch, Walled
from windlass.confinement.making import Mode, NoConfinement, confinement
from windlass.confinement.processes import exit_code, innermost
from windlass.confinement.python import python_paths
from windlass.confinement.walls import Limits, Walls

__all__ = [
    "Bare",
    "Confinement",
    "Launch",
    "Limits",
    "Mode",
    "NoConfinement",
    "Walled",
    "Walls",
    "confinement",
    "exit_code",
    "innermost",
    "python_paths",
]
