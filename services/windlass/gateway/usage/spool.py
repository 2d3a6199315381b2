"""Usage records on disk until the usage service has them."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from windlass.core import spool, telemetry
from windlass.core.spool import MEMORY_ROWS, SEGMENT_BYTES

__all__ = ["MEMORY_ROWS", "SEGMENT_BYTES", "UsageLine", "UsageSpool", "frame", "read_segment"]
log = telemetry.logger("gateway.spool")


class UsageLine(msgspec.Struct, array_like=True):
    """One record, as `windlass.api.usage.v1.UsageRecord`."""

    id: str
    at_ms: int
    organization_id: str
    project_id: str
    user_id: str
    key_id: str
    model: str
    kind: int
    input_tokens: int
    output_tokens: int
    duration_ms: int
    time_to_first_token_ms: int
    status: int


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(UsageLine).decode


class UsageSpool:
    """Usage in a spool of the kernel's kind."""

    def __init__(self, folder: Path, *, segment_bytes: int = SEGMENT_BYTES):
        self._lines = spool.Spool(folder, segment_bytes=segment_bytes)
        self.arrived = self._lines.arrived
        self.flush = self._lines.flush
        self.seal = self._lines.seal
        self.sealed = self._lines.sealed
        self.age_seconds = self._lines.age_seconds

    def append(self, line: UsageLine) -> None:
        """Writes one record."""
        self._lines.append(_encode(line))


def frame(line: UsageLine) -> bytes:
    """A record as a line that carries its own check sum."""
    return spool.frame(_encode(line))


def read_segment(path: Path) -> Iterator[UsageLine]:
    """The records of a segment; one that is damaged or unknown is skipped and logged."""
    for body in spool.read_lines(path):
        try:
            yield _decode(body)
        except msgspec.MsgspecError:
            log.warning("usage_line_damaged", segment=path.name)
