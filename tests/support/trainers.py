"""Processes of trainers that a test's own process started."""

from contextlib import suppress

import psutil


def trainers() -> list[psutil.Process]:
    """Those that run, torchrun and what that started too."""
    found = []
    for one in psutil.Process().children(recursive=True):
        # It may end while it is looked at.
        with suppress(psutil.Error):
            if "windlass_agent.tuning" in " ".join(one.cmdline()):
                found.append(one)
    return found
