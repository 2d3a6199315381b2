"""What the demo prints, as it is and not too fast."""

import io
import time
from itertools import pairwise

import pytest

from windlass.demo import narrator as module
from windlass.demo.narrator import Narrator


class Stamped(io.StringIO):
    """When each piece was written."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    def write(self, text: str) -> int:
        self.times.append(time.monotonic())
        return super().write(text)


def test_elsewhere_lines_are_apart_and_what_belongs_together_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "PACE_SECONDS", 0.1)
    stream = Stamped()
    narrator = Narrator(stream)
    narrator.say("one")
    narrator.say("two", "three")
    with narrator.waiting("nothing is shown of this"):
        narrator.say("four")
    assert stream.getvalue() == "one\ntwo\nthree\nfour\n"
    assert len(stream.times) == 3
    assert all(later - earlier >= 0.1 for earlier, later in pairwise(stream.times))


def test_a_text_is_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PACE_SECONDS", 0.0)
    stream = io.StringIO()
    text = f"[/b] :ticket: [red]{'long ' * 50}"
    Narrator(stream).say(text, style="red")
    assert stream.getvalue() == f"{text}\n"
