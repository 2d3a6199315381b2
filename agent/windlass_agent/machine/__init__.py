"""Resources of this machine: GPUs, CPUs and memory."""

from windlass_agent.machine.devices import Device
from windlass_agent.machine.machine import Machine, look

__all__ = ["Device", "Machine", "look"]
