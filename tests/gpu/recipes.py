"""Training data of the recipes, and the evidence that a job has learned."""

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

from tests.support.clients.jobs import ended

from windlass.demo.questions import split

Row = dict[str, Any]
SECONDS = 3600.0
# The DPO recipe prefers an instruction's own answer to that of another one so far away.
_APART = 7


def read_alpaca(path: Path | None, count: int) -> list[Row]:
    """Chats of Stanford's `alpaca_data.json`, the first `count`; of the demo without a file."""
    if path is None:
        return [question.to_row() for question in split()[0][:count]]
    return [_chat(one) for one in islice(json.loads(path.read_text()), count)]


def _chat(one: dict[str, str]) -> Row:
    asked = one["instruction"] + (f"\n\n{one['input']}" if one.get("input") else "")
    return {
        "messages": [
            {"role": "user", "content": asked},
            {"role": "assistant", "content": one["output"] or "I do not know."},
        ]
    }


def preferences(chats: list[Row]) -> Iterator[Row]:
    """Each chat's answer, preferred to the answer of another one."""
    for number, chat in enumerate(chats):
        asked, good = chat["messages"]
        other = chats[(number + _APART) % len(chats)]["messages"][1]
        if other["content"] != good["content"]:
            yield {
                "input": {"messages": [asked]},
                "preferred_output": [good],
                "non_preferred_output": [other],
            }


def write(path: Path, rows: list[Row]) -> Path:
    """Rows as JSON Lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def train(client: Any, path: Path, **asked: Any) -> Any:
    """The job once it has succeeded."""
    file = client.files.create(file=path, purpose="fine-tune")
    job = client.fine_tuning.jobs.create(training_file=file.id, **asked)
    job = ended(client, job, SECONDS)
    assert job.status == "succeeded", job.error
    return job


def measured(client: Any, job: Any, name: str) -> list[float]:
    """A metric at every step that has it, in order."""
    events = list(client.fine_tuning.jobs.list_events(job.id, limit=100))
    found = {
        event.data["step"]: event.data[name]
        for event in events
        if event.type == "metrics" and name in event.data
    }
    return [value for _, value in sorted(found.items())]


def ends(values: list[float]) -> tuple[float, float]:
    """The means of the first and of the last fifth."""
    part = max(1, len(values) // 5)
    return fmean(values[:part]), fmean(values[-part:])
