"""The main job, step by step, through the same API that every user has."""

import hashlib
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from windlass.client import Windlass, WindlassError
from windlass.client.display.job_bar import follow_job
from windlass.client.resources.models import manifest, model_files
from windlass.demo.narrator import Narrator
from windlass.demo.task import DemoTask, Exam

# Answers are asked for a few at a time, as a client with several threads would.
AT_ONCE = 4
ANSWER_TOKENS = 128


@dataclass(frozen=True)
class AskedQuestion:
    """A held-out question, and what the model said before and after its training."""

    question: str
    expected: str
    before: str
    after: str


@dataclass
class JourneySummary:
    """Results of the demo, written as `summary.json`."""

    model: str = ""
    right_before: int = 0
    right_after: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    training_file: str = ""
    job: str = ""
    fine_tuned_model: str = ""
    questions: list[AskedQuestion] = field(default_factory=list)

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Adds a phase's seconds."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds[phase] = round(time.monotonic() - began, 2)


class JourneyFailed(Exception):
    """The job did not end well; the message says how."""


def travel(
    windlass: Windlass,
    narrator: Narrator,
    *,
    model: str,
    folder: Path,
    task: DemoTask,
    work: Path,
) -> JourneySummary:
    """Imports, asks, uploads, trains and asks again.

    Raises JourneyFailed when the job fails, WindlassError for a refusal.
    """
    summary = JourneySummary()
    with summary.timed("import"), narrator.waiting("importing the model"):
        summary.model = import_model(windlass, model, folder)
    with summary.timed("ask_before"):
        before = ask_all(windlass, summary.model, task.exams, narrator)
    summary.right_before = _count_right(task.exams, before)
    of = f"of {len(task.exams)} held-out questions right"
    narrator.say(f"Before: {summary.model} answers {summary.right_before} {of}.")
    with summary.timed("upload"), narrator.waiting("uploading the examples"):
        path = task.write(work / "train.jsonl")
        summary.training_file = windlass.files.upload(path)["id"]
    with summary.timed("fine_tune"):
        job = train(windlass, summary.model, summary.training_file, narrator)
    summary.job, summary.fine_tuned_model = job["id"], job["fine_tuned_model"]
    with summary.timed("ask_after"):
        after = ask_all(windlass, summary.fine_tuned_model, task.exams, narrator)
    summary.right_after = _count_right(task.exams, after)
    narrator.say(f"After: {summary.fine_tuned_model} answers {summary.right_after} {of}.")
    summary.questions = [
        AskedQuestion(exam.question, exam.answer, *replies)
        for exam, *replies in zip(task.exams, before, after, strict=True)
    ]
    return summary


def import_model(windlass: Windlass, name: str, folder: Path) -> str:
    """Imports a base model, and answers its id: the name, unless another model has it."""
    files = model_files(folder)
    promised = manifest(files)
    try:
        return str(windlass.models.upload(name, files, promised)["id"])
    except WindlassError as error:
        if error.code != "model_exists":
            raise
    # What was fine-tuned from the other one needs it still.
    digest = hashlib.sha256(json.dumps(promised).encode()).hexdigest()
    return str(windlass.models.upload(f"{name}-{digest[:8]}", files, promised)["id"])


def train(windlass: Windlass, model: str, file: str, narrator: Narrator) -> dict[str, Any]:
    """Creates the job and follows it to its end."""
    request = {
        "model": model,
        "training_file": file,
        "suffix": "demo",
        "seed": 7,
        "method": {"type": "supervised", "supervised": {"hyperparameters": {"n_epochs": "auto"}}},
    }
    created = windlass.jobs.create(request)
    job = follow_job(windlass, created["id"], narrator.console)
    if job["status"] != "succeeded":
        error = job.get("error") or {}
        raise JourneyFailed(f"The job {job['status']}: {error.get('message') or 'no reason given'}")
    return job


def ask_all(windlass: Windlass, model: str, exams: list[Exam], narrator: Narrator) -> list[str]:
    """Asks every question, and answers the replies in their order."""
    asking = f"asking {model}"
    with narrator.waiting(asking) as line, _threads() as pool:

        def ask(exam: Exam) -> str:
            # Streamed and sampled at the default temperature, as a user meets it.
            pieces = windlass.chat.stream(
                model,
                exam.messages,
                waiting=lambda reason: line.say(f"{asking}: {reason}"),
                max_completion_tokens=ANSWER_TOKENS,
            )
            return "".join(pieces).strip()

        # The first answer may wait for an engine to start.
        first = ask(exams[0])
        line.say(f"{asking} {len(exams)} held-out questions")
        return [first, *pool.map(ask, exams[1:])]


@contextmanager
def _threads() -> Iterator[ThreadPoolExecutor]:
    """A pool that nobody waits for when its user is interrupted."""
    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _count_right(exams: list[Exam], replies: list[str]) -> int:
    return sum(reply == exam.answer for exam, reply in zip(exams, replies, strict=True))
