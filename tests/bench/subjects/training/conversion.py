"""A tenant's fine-tuning file as a trainer's rows: checked line by line, converted and written."""

import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from tests.bench.figures import Figure, Options, at_least

from windlass.demo import questions
from windlass_agent.runner.transfer import dataset

MB = 1_000_000
# Words of an answer: conversations of a few hundred bytes to a few thousand, as people write them.
WORDS = (20, 400)


async def measure(options: Options) -> list[Figure]:
    """The median of pairs with a loop that only decodes and encodes the same lines."""
    size, rounds = (8 * MB, 1) if options.quick else (64 * MB, 5)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return [
            _measured(folder, read, _write(folder / f"{read}.jsonl", row, size), rounds)
            for read, row in (("chat", _chat), ("preference", _preference))
        ]


def _measured(folder: Path, read: str, source: Path, rounds: int) -> Figure:
    ours, floor = [], []
    for _ in range(rounds):
        began = time.perf_counter()
        dataset.convert(source, folder / "rows.jsonl", read=read, param="training_file")
        ours.append(time.perf_counter() - began)
        floor.append(_loop(source, folder / "floor.jsonl"))
    size = source.stat().st_size / MB
    rate, least = size / statistics.median(ours), size / statistics.median(floor)
    figure = at_least(f"conversion_{read}", rate, "MB/s", 50)
    return figure.beside("msgspec, decode and encode", least)


def _loop(source: Path, target: Path) -> float:
    """Seconds to read every line as JSON and write it again."""
    began = time.perf_counter()
    with source.open("rb") as lines, target.open("wb") as rows:
        for line in lines:
            rows.write(msgspec.json.encode(msgspec.json.decode(line)) + b"\n")
    return time.perf_counter() - began


def _write(path: Path, row: Callable[[random.Random], Any], size: int) -> Path:
    written, source = 0, random.Random(0)
    with path.open("wb") as file:
        while written < size:
            written += file.write(msgspec.json.encode(row(source)) + b"\n")
    return path


def _chat(source: random.Random) -> Any:
    asked, _ = _asked(source)["messages"]
    return {"messages": [asked, {"role": "assistant", "content": _words(source)}]}


def _preference(source: random.Random) -> Any:
    asked, _ = _asked(source)["messages"]
    answers = [[{"role": "assistant", "content": _words(source)}] for _ in range(2)]
    return {
        "input": {"messages": [asked]},
        "preferred_output": answers[0],
        "non_preferred_output": answers[1],
    }


def _asked(source: random.Random) -> Any:
    return source.choice(questions.split()[0]).to_row()


def _words(source: random.Random) -> str:
    known = _asked(source)["messages"][1]["content"].split()
    return " ".join(source.choices(known, k=source.randint(*WORDS)))
