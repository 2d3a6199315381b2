"""Processes of a resident, as the kernel shows them."""

import subprocess
import sys
from pathlib import Path

from tests.support.waiting import wait_until

from windlass_agent.keeper.host.census import MARK, members

# Its first thread ends, as that of a killed process often does before the others.
HEADLESS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
print("started", flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_process_whose_first_thread_has_ended_still_holds_what_it_has() -> None:
    environment = {MARK: "headless"}
    with subprocess.Popen(
        [sys.executable, "-c", HEADLESS], env=environment, stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline()
        wait_until(lambda: _state(process.pid) == "Z", "its first thread has ended")
        assert process.pid in members("headless", process.pid)
        process.kill()
        wait_until(lambda: process.pid not in members("headless", process.pid), "all have ended")


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
