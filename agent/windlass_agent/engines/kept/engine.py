"""Work that every keeper does for its engine."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol


class KeptFailure(Exception):
    """A program that failed, or an adapter that it refuses; the message is for people."""


class KeptEngine(Protocol):
    """An engine that a keeper completes."""

    @property
    def model(self) -> str:
        """The public id of its model."""

    @property
    def adapters(self) -> Mapping[str, Path]:
        """The adapters that answer: by each id the folder that it was loaded from."""

    @property
    def max_adapters(self) -> int:
        """Number of places for adapters."""

    @property
    def context(self) -> int:
        """Tokens of a prompt and its answer together."""

    @property
    def open(self) -> int:
        """Number of requests that an end would cut."""

    async def start(self) -> None:
        """Starts the program and waits until it answers; raises KeptFailure."""

    async def failed(self) -> None:
        """Waits until the program has ended by itself."""

    async def close(self) -> None:
        """Ends the program, and what is open with it."""

    async def answers(self) -> bool:
        """Returns True if requests are answered; never raises."""

    async def metrics(self) -> bytes:
        """The page of the program for Prometheus; raises aiohttp.ClientError or TimeoutError."""

    async def load(self, name: str, folder: Path) -> None:
        """Serves the adapter in `folder` as `name`; one that is served stays.

        Raises KeptFailure; what answered before answers on.
        """

    def unload(self, name: str) -> bool:
        """Stops serving an adapter; False if it is not loaded. Its open requests go on."""
