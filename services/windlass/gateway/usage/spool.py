"""Usage records on disk until the usage service has them."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from windlass.core import spool, telemetry

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
    # Absent in lines of the release before.
    input_cached_tokens: int = 0
    output_reasoning_tokens: int = 0
    estimated: bool = False


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(UsageLine).decode


class UsageSpool(spool.Spool):
    """A spool of usage."""

    def record(self, line: UsageLine) -> None:
        """Writes one record."""
        self.append(_encode(line))


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
