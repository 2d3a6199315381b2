"""Activity of a job, asked of the server while its events are silent."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from windlass.client.display.progress import measures
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
    "exporting": "writing other forms of the model",
    "uploading": "uploading the model",
}


def queue_reason(job: Job) -> str:
    """Returns why a job waits, and at which place, as far as the server says; else empty."""
    extra = job.get("windlass") or {}
    queue = extra.get("queue") or {}
    if extra.get("state") not in ("queued", "starting", "finalizing") or not queue.get("reason"):
        return ""
    place = f", at place {queue['position']}" if queue.get("position") else ""
    return printable(f"waiting{place}: {queue['reason']}")


def activity(job: Job) -> str:
    """Returns what a job does or waits for; empty while it trains, and once it has ended."""
    extra = job.get("windlass") or {}
    state = str(extra.get("state") or "")
    phase = _PHASES.get((extra.get("progress") or {}).get("phase") or "", "")
    if state == "starting":
        return phase or queue_reason(job) or _STATES[state]
    return queue_reason(job) or _STATES.get(state) or (phase if state == "running" else "")


def course(job: Job) -> str:
    """Returns the latest measures of a running job, and the time left; else empty."""
    extra = job.get("windlass") or {}
    if extra.get("state") != "running":
        return ""
    progress, end = extra.get("progress") or {}, job.get("estimated_finish")
    words = measures(
        progress.get("train_mean_reward"),
        progress.get("train_loss"),
        progress.get("tokens_per_second"),
        max(0.0, end - time.time()) if end else None,
    )
    return words or "training"


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
