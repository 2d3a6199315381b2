"""Events on their way to the agent, on disk until it has stored them."""

import errno
import os
from collections import deque
from pathlib import Path

import msgspec
from google.protobuf import json_format

from windlass.api.runner.v1 import runner_pb2 as pb


class EventSpool:
    """A file of events, one JSON object a line; memory holds one batch, however long it grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer = path.open("ab", buffering=0)
        self._start = 0
        self._end = self._writer.seek(0, os.SEEK_END)
        self._ends: deque[tuple[int, int]] = deque()
        self.last_seq = 0

    @property
    def is_empty(self) -> bool:
        """True if everything appended is acknowledged."""
        return self._start == self._end

    def append(self, event: pb.RunEvent) -> None:
        """Gives the event the next seq and writes it; raises OSError, having written nothing."""
        event.seq = self.last_seq + 1
        fields = json_format.MessageToDict(event, preserving_proto_field_name=True)
        line = msgspec.json.encode(fields) + b"\n"
        if self._writer.write(line) != len(line):
            self._writer.truncate(self._end)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
        self._end += len(line)
        self.last_seq += 1

    def batch(self, limit: int) -> list[pb.RunEvent]:
        """The oldest events that are not acknowledged, at most `limit`."""
        self._ends.clear()
        events: list[pb.RunEvent] = []
        offset = self._start
        with self._path.open("rb") as file:
            file.seek(offset)
            while len(events) < limit and offset < self._end:
                line = file.readline()
                offset += len(line)
                event = json_format.ParseDict(msgspec.json.decode(line), pb.RunEvent())
                events.append(event)
                self._ends.append((event.seq, offset))
        return events

    def acknowledge(self, seq: int) -> None:
        """Forgets the events of the last batch up to `seq`."""
        while self._ends and self._ends[0][0] <= seq:
            self._start = self._ends.popleft()[1]
        if self.is_empty:
            self._writer.truncate(0)
            self._start = self._end = 0

    def close(self) -> None:
        """Closes the file; what is in it stays."""
        self._writer.close()
