"""Resources of this machine: GPUs, CPUs and memory.

It imports `windlass.backends`, the kernel, and of the agent `control_groups` and `memory` alone.
"""

from windlass_agent.machine.devices import Device
from windlass_agent.machine.machine import Machine, look

__all__ = ["Device", "Machine", "look"]
