"""A tenant's Python, run where it can reach nothing: bubblewrap around an interpreter.

`make_sandbox` tries whether this machine allows it; nothing runs without one.

May import `confinement`, graders and the kernel.
"""

from windlass.sandbox.bubblewrap import Sandbox
from windlass.sandbox.limits import SandboxLimits
from windlass.sandbox.making import NoSandbox, make_sandbox
from windlass.sandbox.program import Program
from windlass.sandbox.programs import Programs, Unfit

__all__ = ["NoSandbox", "Program", "Programs", "Sandbox", "SandboxLimits", "Unfit", "make_sandbox"]
