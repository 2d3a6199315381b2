"""Stands for NVIDIA's `cuda-checkpoint`: its arguments, its order of actions, and processes that
do nothing while they are parked. It stops the process; the real one moves the driver's memory.
"""

import argparse
import os
import signal
import sys
from pathlib import Path

# Each action, and the state that it leads from and to.
ACTIONS = {
    "lock": ("running", "locked"),
    "checkpoint": ("locked", "checkpointed"),
    "restore": ("checkpointed", "locked"),
    "unlock": ("locked", "running"),
}
SIGNALS = {"checkpoint": signal.SIGSTOP, "restore": signal.SIGCONT}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--action", required=True, choices=list(ACTIONS))
    parser.add_argument("--pid", required=True, type=int)
    options = parser.parse_args()
    before, after = ACTIONS[options.action]
    state = Path(f"{__file__}.{options.pid}")
    if (state.read_text() if state.exists() else "running") != before:
        print(f"Could not {options.action} on process ID {options.pid}: invalid argument")
        return 1
    if number := SIGNALS.get(options.action):
        os.kill(options.pid, number)
    state.write_text(after)
    return 0


if __name__ == "__main__":
    sys.exit(main())
