"""`python -m windlass.demo`, which ends in a word by Ctrl-C, `kill` or a closed terminal."""

import os
import sys

from windlass.demo.interrupts import INTERRUPTS

INTERRUPTED = 130


def main() -> int:
    """Runs the demo and returns its exit code."""
    INTERRUPTS.install()
    try:
        # An impatient user interrupts the imports too.
        from windlass.demo.command import run

        return run()
    except (KeyboardInterrupt, Exception):
        if not INTERRUPTS.came:
            raise
        print("Stopped.")
        return INTERRUPTED


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    # At once: threads may still wait for answers, and torch takes seconds to be taken apart.
    os._exit(code)
