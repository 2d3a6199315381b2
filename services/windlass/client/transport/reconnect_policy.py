"""Policy of how long a reader of a live stream waits for an unreachable server."""

import time

from windlass.client.errors import ConnectionFailed, WindlassError
from windlass.core.backoff import Backoff

_FIRST_SECONDS, _LONGEST_SECONDS = 0.2, 5.0
# A server's refusal is final; an error of its own or one in mid-stream may pass.
_REFUSALS = set(range(400, 500)) - {408, 429}


class ReconnectPolicy:
    """Pauses between attempts, longer each time, up to `seconds` without a success."""

    def __init__(self, seconds: float):
        self._seconds = seconds
        self._backoff = Backoff(shortest=_FIRST_SECONDS, longest=_LONGEST_SECONDS)
        # The first contact must succeed at once: an address may be wrong.
        self._deadline = 0.0

    def reset(self) -> None:
        """Records that the server answered."""
        self._backoff.reset()
        self._deadline = time.monotonic() + self._seconds

    def wait(self) -> None:
        """Sleeps before the next attempt."""
        time.sleep(self._backoff.next())

    def record_failure(self, error: ConnectionFailed | WindlassError) -> None:
        """Sleeps after a failure; raises it if it is the caller's fault or no time is left."""
        lasting = isinstance(error, WindlassError) and error.status in _REFUSALS
        if lasting or time.monotonic() > self._deadline:
            raise error
        self.wait()
