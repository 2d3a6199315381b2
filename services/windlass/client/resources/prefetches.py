"""Prefetches: files of models that clusters bring before anyone asks."""

import time
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from windlass.client.transport.session import Session

PATH = "/v1/prefetches"
LOOK_SECONDS = 0.5
# A page of the newest has those that were just begun.
_PAGE = 100
ENDED = frozenset({"ready", "failed"})

Prefetch = dict[str, Any]


class Prefetches:
    """Prefetches of the project."""

    def __init__(self, client: Session):
        self._client = client

    def create(self, model: str, clusters: Sequence[str] = ()) -> list[Prefetch]:
        """Has clusters, by id, bring a model's files; all that can where none is named."""
        body = {"model": model, "clusters": list(clusters)}
        found: list[Prefetch] = self._client.post(PATH, body)["data"]
        return found

    def list(self, *, limit: int | None = None) -> Iterator[Prefetch]:
        """The project's, newest first."""
        return self._client.pages(PATH, limit=limit)

    def wait(self, begun: Collection[Prefetch]) -> "Sequence[Prefetch]":
        """Returns these once each is ready or has failed."""
        ids = {one["id"] for one in begun}
        while True:
            found = [one for one in self.list(limit=_PAGE) if one["id"] in ids]
            if all(one["state"] in ENDED for one in found):
                return found
            time.sleep(LOOK_SECONDS)
