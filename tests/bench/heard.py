"""Trainer events and their times, read from the metrics file by a thread."""

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.support.waiting import wait_until

LOOK_SECONDS = 0.005
MAX_SECONDS = 600


@dataclass
class Trainer:
    """One trainer, by the folder of its attempt; times are of `perf_counter`.

    `seen` is when the folder was, `began` when the first step was announced, `steps` when each
    was done.
    """

    seen: float
    began: float | None = None
    steps: dict[int, float] = field(default_factory=dict)
    _read: int = 0

    @property
    def training_seconds(self) -> float:
        """From the announcement of the first step to the end of the last."""
        if self.began is None or not self.steps:
            raise RuntimeError("the trainer made no step")
        return max(self.steps.values()) - self.began

    def look(self, file: Path) -> None:
        """Takes what was written since the last look."""
        with contextlib.suppress(FileNotFoundError), file.open("rb") as said:
            said.seek(self._read)
            *lines, _ = said.read().split(b"\n")
            now = time.perf_counter()
            for line in lines:
                self._read += len(line) + 1
                event = json.loads(line)
                if event["event"] == "began":
                    self.began = self.began or now
                elif event["event"] == "logged":
                    self.steps.setdefault(event["step"], now)


Trainers = dict[Path, Trainer]


@contextlib.contextmanager
def heard(folder: Path) -> Iterator[Trainers]:
    """The trainers of the attempts in a folder, in the order in which they began, as they train."""
    trainers: Trainers = {}
    over = threading.Event()

    def look() -> None:
        while not over.wait(LOOK_SECONDS):
            for file in folder.glob("*/"):
                trainer = trainers.setdefault(file, Trainer(time.perf_counter()))
                trainer.look(file / "trainer.jsonl")

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield trainers
    finally:
        over.set()
        thread.join()


# Looks as often as the trainers are looked at, so that it adds nothing to what is measured.
listen_until = partial(
    wait_until, what="the trainer is heard", seconds=MAX_SECONDS, every=LOOK_SECONDS
)
