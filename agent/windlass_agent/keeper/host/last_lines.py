"""Output of a resident: passed on line by line with its name, and its end kept."""

import asyncio
import sys
from collections import deque

_LINES, _CHARACTERS, _READ_BYTES = 20, 300, 64 * 1024


class LastLines:
    """The last lines of a resident's processes."""

    def __init__(self, name: str):
        self._name = name
        self._kept: deque[str] = deque(maxlen=_LINES)

    def __str__(self) -> str:
        return "\n".join(self._kept)

    def note(self, line: str) -> None:
        """Passes a line on, and keeps it."""
        self._kept.append(line[:_CHARACTERS])
        sys.stderr.write(f"[{self._name}] {line}\n")

    async def follow(self, output: asyncio.StreamReader) -> None:
        """Takes all that comes until it ends."""
        rest = b""
        while data := await output.read(_READ_BYTES):
            *lines, rest = (rest + data).split(b"\n")
            if len(rest) > _READ_BYTES:
                lines, rest = [*lines, rest], b""
            for line in lines:
                self.note(line.decode(errors="replace"))
        if rest:
            self.note(rest.decode(errors="replace"))
