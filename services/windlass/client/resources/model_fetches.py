"""Fetches: models that the server gets from a hub by itself."""

import time
from collections.abc import Iterator
from typing import Any

from windlass.client.transport.session import Session
from windlass.client.transport.urls import at

PATH = "/v1/model_fetches"
LOOK_SECONDS = 0.5
ENDED = frozenset({"succeeded", "failed", "cancelled"})

Fetch = dict[str, Any]


class Fetches:
    """Fetches of the project."""

    def __init__(self, client: Session):
        self._client = client

    def create(
        self, source: str, *, name: str = "", revision: str = "", for_everyone: bool = False
    ) -> Fetch:
        """Begins a fetch of `hf://user/repository`; the same wish again answers the open one."""
        body = {"source": source, "id": name, "revision": revision, "global": for_everyone}
        found: Fetch = self._client.post(PATH, body)
        return found

    def get(self, fetch_id: str) -> Fetch:
        """Returns one fetch."""
        found: Fetch = self._client.get(at(PATH, fetch_id))
        return found

    def list(self, *, limit: int | None = None) -> Iterator[Fetch]:
        """The project's, newest first."""
        return self._client.pages(PATH, limit=limit)

    def cancel(self, fetch_id: str) -> Fetch:
        """Ends one and removes what it brought."""
        found: Fetch = self._client.post(at(PATH, fetch_id, "cancel"))
        return found

    def follow(self, fetch_id: str) -> Iterator[Fetch]:
        """Yields how far it is, again and again; last as it ended."""
        while True:
            found = self.get(fetch_id)
            yield found
            if found["status"] in ENDED:
                return
            time.sleep(LOOK_SECONDS)
