"""What a job is doing or waiting for, asked of the server while its events are silent."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from windlass.client.display.text import printable
from windlass.client.errors import ConnectionFailed, WindlassError

if TYPE_CHECKING:
    from windlass.client.windlass import Windlass

Job = dict[str, Any]
LOOK_SECONDS = 1.0

_STATES = {
    "validating": "inspecting the files",
    "queued": "waiting for a place",
    "starting": "starting the runner",
    "pausing": "saving the state, to pause",
    "paused": "paused, until `windlass jobs resume`",
    "cancelling": "cancelling",
    "finalizing": "registering the model",
}
_PHASES = {
    "preparing": "getting the model and the files",
    "starting": "starting the trainer",
    "evaluating": "evaluating the model",
    "uploading": "uploading the model",
}


def queue_reason(job: Job) -> str:
    """Why a job waits, and at which place, as far as the server says; else empty."""
    extra = job.get("windlass") or {}
    queue = extra.get("queue") or {}
    if extra.get("state") not in ("queued", "starting") or not queue.get("reason"):
        return ""
    place = f", at place {queue['position']}" if queue.get("position") else ""
    return printable(f"waiting{place}: {queue['reason']}")


def activity(job: Job) -> str:
    """What a job is doing or waiting for; empty while it trains, and once it has ended."""
    extra = job.get("windlass") or {}
    state = str(extra.get("state") or "")
    phase = _PHASES.get((extra.get("progress") or {}).get("phase") or "", "")
    if state == "starting":
        return phase or queue_reason(job) or _STATES[state]
    return queue_reason(job) or _STATES.get(state) or (phase if state == "running" else "")


@contextmanager
def watched_activity(
    client: "Windlass",
    job_id: str,
    show: Callable[[str], None],
    describe: Callable[[Job], str] = activity,
) -> Iterator[None]:
    """Calls `show` each second, from another thread, with a job's description while the block runs.

    A server that does not answer is described too.
    """
    stopped = threading.Event()

    def look() -> None:
        while not stopped.is_set():
            try:
                words = describe(client.jobs.get(job_id))
            except (ConnectionFailed, WindlassError) as error:
                words = f"{printable(str(error))}; trying again"
            except Exception:
                # The session is closed by who left the block without waiting for an answer.
                if stopped.is_set():
                    return
                raise
            if not stopped.is_set():
                show(words)
            stopped.wait(LOOK_SECONDS)

    threading.Thread(target=look, name="job activity", daemon=True).start()
    try:
        yield
    finally:
        stopped.set()
