"""Processes of this machine by id and start, so that a later one of the same id is another."""

import os
import signal

import psutil

_GONE_SECONDS = 10.0


def identity(pid: int) -> str:
    """Names a process that lives; empty where it has gone."""
    try:
        return f"{pid}:{psutil.Process(pid).create_time():.2f}"
    except psutil.Error:
        return ""


def lives(named: str) -> bool:
    """Returns True while that very process is there."""
    return bool(named) and identity(_pid(named)) == named


def ended(named: str) -> bool:
    """Kills a process and the session that it leads; returns True once it is gone. Blocks."""
    if not lives(named):
        return True
    pid = _pid(named)
    try:
        process = psutil.Process(pid)
        # Whoever leads no session of its own shares one with others.
        if os.getsid(pid) == pid:
            os.killpg(pid, signal.SIGKILL)
        else:
            process.kill()
        process.wait(_GONE_SECONDS)
    except (psutil.NoSuchProcess, ProcessLookupError):
        return True
    except psutil.TimeoutExpired:
        return False
    return True


def _pid(named: str) -> int:
    return int(named.partition(":")[0])
