"""Events from a trainer to its runner: one JSON object a line in the metrics file.

A backend of another distribution takes part by appending the same lines to the file that
`RenderContext.metrics` and the variable `WINDLASS_METRICS_FILE` name.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
from msgspec import Struct

METRICS_VARIABLE = "WINDLASS_METRICS_FILE"
_POLL_SECONDS = 0.2
_CHUNK_BYTES = 1 << 20


class ProgressEvent(Struct, frozen=True, kw_only=True, tag_field="event", omit_defaults=True):
    """Common to all events: how far training is."""

    step: int = 0
    total_steps: int = 0
    epoch: float = 0.0


class Prepared(ProgressEvent, frozen=True, kw_only=True, tag="prepared"):
    """A part of the data is tokenized; some of `examples` exceed `limit` tokens.

    `truncated` are cut there; `left_out` would leave nothing to learn from.
    """

    split: str
    examples: int
    truncated: int = 0
    left_out: int = 0
    limit: int | None = None


class Began(ProgressEvent, frozen=True, kw_only=True, tag="began"):
    """The first step follows."""


class Logged(ProgressEvent, frozen=True, kw_only=True, tag="logged"):
    """Measurements, by the trainer's names; tokens are counted since the start of the job."""

    logs: dict[str, float]
    trained_tokens: int = 0


class Saved(ProgressEvent, frozen=True, kw_only=True, tag="saved"):
    """A checkpoint lies complete at `path`; `to_resume` makes it a state to go on from alone."""

    path: str
    to_resume: bool = False


class Noted(ProgressEvent, frozen=True, kw_only=True, tag="noted"):
    """A message of the trainer that people should know of."""

    message: str


class Ended(ProgressEvent, frozen=True, kw_only=True, tag="ended"):
    """Training is over; the final model lies in the output folder if every step was made."""


class Failed(ProgressEvent, frozen=True, kw_only=True, tag="failed"):
    """Training cannot succeed, and why."""

    code: str
    message: str
    param: str = ""


TrainerEvent = Prepared | Began | Logged | Saved | Noted | Ended | Failed
_DECODER = msgspec.json.Decoder(TrainerEvent)


def encode(event: TrainerEvent) -> bytes:
    """The line of an event, with its end."""
    return msgspec.json.encode(event) + b"\n"


async def follow(path: Path, ended: "asyncio.Future[int]") -> AsyncIterator[TrainerEvent]:
    """Yields the events of a file as they come, until the process has ended and all is read."""
    offset = 0
    rest = b""
    while True:
        last = ended.done()
        while chunk := _read(path, offset):
            offset += len(chunk)
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield _DECODER.decode(line)
        if last:
            return
        await asyncio.wait({ended}, timeout=_POLL_SECONDS)


def _read(path: Path, offset: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(_CHUNK_BYTES)
    except FileNotFoundError:
        return b""
