"""Fine-tuning jobs: following their events and logs until they end."""

from collections.abc import Iterator
from typing import Any

from windlass.client.errors import ConnectionFailed, WindlassError
from windlass.client.transport import sse
from windlass.client.transport.reconnect_policy import ReconnectPolicy
from windlass.client.transport.session import Session
from windlass.client.transport.urls import at

ENDED = frozenset({"succeeded", "failed", "cancelled"})
PATH = "/v1/fine_tuning/jobs"
# A server that restarts or is upgraded is away for less.
PATIENCE_SECONDS = 300.0


class Jobs:
    """Jobs as in openai-python, with following."""

    def __init__(self, client: Session):
        self._client = client

    def get(self, job_id: str) -> dict[str, Any]:
        """Returns one job."""
        answer: dict[str, Any] = self._client.get(at(PATH, job_id))
        return answer

    def create(self, request: dict[str, Any]) -> dict[str, Any]:
        """A new job, of OpenAI's request body."""
        answer: dict[str, Any] = self._client.post(PATH, request)
        return answer

    def check(
        self,
        request: dict[str, Any],
        *,
        training_format: str = "",
        training_examples: int = 0,
        validation_format: str = "",
        evaluation_format: str = "",
    ) -> dict[str, Any]:
        """The job as it would be, without an id; nothing is created.

        A file that is not uploaded yet is left out of the request, and described instead.
        """
        params = {
            "dry_run": True,
            "training_format": training_format,
            "training_examples": training_examples or None,
            "validation_format": validation_format,
            "evaluation_format": evaluation_format,
        }
        answer: dict[str, Any] = self._client.request("POST", PATH, json=request, params=params)
        return answer

    def act(self, job_id: str, verb: str) -> dict[str, Any]:
        """The job after `cancel`, `pause` or `resume`."""
        answer: dict[str, Any] = self._client.post(at(PATH, job_id, verb))
        return answer

    def explain(self, job_id: str) -> dict[str, Any]:
        """Returns why the job is where it is, or why it waits: a sentence, and a verdict per
        cluster.
        """
        answer: dict[str, Any] = self._client.get(at(PATH, job_id, "explain"))
        return answer

    def events(
        self, job_id: str, *, after: str = "", patience_seconds: float = PATIENCE_SECONDS
    ) -> Iterator[dict[str, Any]]:
        """Events from the first (or past `after`) on, live until the job has ended.

        A lost connection is taken up again where it broke, so that no event is
        missed or seen twice; ConnectionFailed comes after `patience_seconds`
        without an answer.
        """
        reconnects = ReconnectPolicy(patience_seconds)
        while True:
            try:
                before, ended = after, self.get(job_id)["status"] in ENDED
                reconnects.reset()
                for event in self._stream(job_id, after):
                    after = event["id"]
                    reconnects.reset()
                    yield event
                if ended:
                    return
                if after == before:
                    reconnects.wait()
            except (ConnectionFailed, WindlassError) as error:
                reconnects.record_failure(error)

    def _stream(self, job_id: str, after: str) -> Iterator[dict[str, Any]]:
        path = at(PATH, job_id, "events")
        with self._client.stream(path, stream="true", after=after) as response:
            yield from sse.read(response)

    def log(
        self,
        job_id: str,
        *,
        follow: bool = False,
        offset: int = 0,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> Iterator[bytes]:
        """The job's log from byte `offset` on; with `follow` until the job has ended.

        A lost connection is taken up again where it broke, as with `events`.
        """
        reconnects = ReconnectPolicy(patience_seconds)
        while True:
            try:
                ended = not follow or self.get(job_id)["status"] in ENDED
                for piece in self._log(job_id, follow=follow, offset=offset):
                    offset += len(piece)
                    reconnects.reset()
                    yield piece
                if ended:
                    return
                reconnects.reset()
                reconnects.wait()
            except (ConnectionFailed, WindlassError) as error:
                reconnects.record_failure(error)

    def _log(self, job_id: str, *, follow: bool, offset: int) -> Iterator[bytes]:
        path = at(PATH, job_id, "logs")
        with self._client.stream(
            path, follow="true" if follow else "", offset=offset or ""
        ) as response:
            yield from response.iter_bytes()

    def wait(self, job_id: str) -> dict[str, Any]:
        """The job once it has ended."""
        for _ in self.events(job_id):
            pass
        return self.get(job_id)
