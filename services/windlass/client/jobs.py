"""Fine-tuning jobs: following their events and logs until they end."""

import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from windlass.client.errors import ConnectionFailed

if TYPE_CHECKING:
    from windlass.client.windlass import Windlass

ENDED = frozenset({"succeeded", "failed", "cancelled"})
_PAUSE_SECONDS = (0.2, 5.0)


class Jobs:
    """What openai-python's jobs lack: following."""

    def __init__(self, client: "Windlass"):
        self._client = client

    def get(self, job_id: str) -> dict[str, Any]:
        """One job."""
        answer: dict[str, Any] = self._client.get(f"/v1/fine_tuning/jobs/{job_id}")
        return answer

    def events(self, job_id: str, *, after: str = "") -> Iterator[dict[str, Any]]:
        """Events from the first (or past `after`) on, live until the job has ended.

        A lost connection is taken up again where it broke, so that no event is
        missed or seen twice.
        """
        pause = _PAUSE_SECONDS[0]
        while True:
            try:
                for event in self._stream(job_id, after):
                    after = event["id"]
                    pause = _PAUSE_SECONDS[0]
                    yield event
                if self.get(job_id)["status"] in ENDED:
                    yield from self._stream(job_id, after)
                    return
            except ConnectionFailed:
                time.sleep(pause)
                pause = min(pause * 2, _PAUSE_SECONDS[1])

    def _stream(self, job_id: str, after: str) -> Iterator[dict[str, Any]]:
        path = f"/v1/fine_tuning/jobs/{job_id}/events"
        with self._client.stream(path, stream="true", after=after) as response:
            for line in response.iter_lines():
                if line.startswith("data: ") and line != "data: [DONE]":
                    yield json.loads(line.removeprefix("data: "))

    def log(self, job_id: str, *, follow: bool = False, offset: int = 0) -> Iterator[bytes]:
        """The job's log as it comes; with `follow` until the job has ended."""
        path = f"/v1/fine_tuning/jobs/{job_id}/logs"
        query = {"follow": "true" if follow else "", "offset": offset or ""}
        with self._client.stream(path, **query) as response:
            yield from response.iter_raw()

    def wait(self, job_id: str) -> dict[str, Any]:
        """The job once it has ended."""
        for _ in self.events(job_id):
            pass
        return self.get(job_id)
