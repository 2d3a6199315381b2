"""The main job, step by step, through the same API that every user has."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from windlass.client import Windlass
from windlass.client.display.job_bar import follow_job
from windlass.demo.task import DemoTask, Exam

# Answers are asked for a few at a time, as a client with several threads would.
AT_ONCE = 4
ANSWER_TOKENS = 128


@dataclass
class JourneySummary:
    """Results of the demo, written as `summary.json`."""

    model: str
    questions: int = 0
    right_before: int = 0
    right_after: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    training_file: str = ""
    job: str = ""
    fine_tuned_model: str = ""

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


def run(
    windlass: Windlass, *, model: str, folder: Path, task: DemoTask, work: Path
) -> JourneySummary:
    """Imports, asks, uploads, trains and asks again.

    Raises JourneyFailed when the job fails, WindlassError for a refusal.
    """
    console = Console(emoji=False)
    summary = JourneySummary(model=model, questions=len(task.exams))
    with summary.timed("import"):
        imported = windlass.models.import_folder(model, folder)
    console.print(f"Imported the base model [bold]{imported['id']}[/bold].")
    console.print(f"Asking it {len(task.exams)} held-out questions:")
    with summary.timed("ask_before"):
        summary.right_before = ask_all(windlass, model, task.exams, console)
    console.print(f"Right before: [bold]{summary.right_before} of {summary.questions}[/bold]")
    with summary.timed("upload"):
        path = task.write(work / "train.jsonl")
        file = windlass.openai.files.create(file=path, purpose="fine-tune")
    summary.training_file = file.id
    console.print(f"Uploaded {len(task.rows)} examples as {file.id}.")
    with summary.timed("fine_tune"):
        job = train(windlass, model, file.id, console)
    summary.job, summary.fine_tuned_model = job["id"], job["fine_tuned_model"]
    console.print(f"Asking [bold]{summary.fine_tuned_model}[/bold] the same questions:")
    with summary.timed("ask_after"):
        summary.right_after = ask_all(windlass, summary.fine_tuned_model, task.exams, console)
    console.print(f"Right after: [bold]{summary.right_after} of {summary.questions}[/bold]")
    return summary


def train(windlass: Windlass, model: str, file: str, console: Console) -> dict[str, Any]:
    """Creates the job and follows it to its end."""
    created = windlass.openai.fine_tuning.jobs.create(
        model=model,
        training_file=file,
        suffix="demo",
        seed=7,
        method={"type": "supervised", "supervised": {"hyperparameters": {"n_epochs": "auto"}}},
    )
    job: dict[str, Any] = follow_job(windlass, created.id, console)
    if job["status"] != "succeeded":
        error = job.get("error") or {}
        raise JourneyFailed(f"The job {job['status']}: {error.get('message') or 'no reason given'}")
    return job


def ask_all(windlass: Windlass, model: str, exams: list[Exam], console: Console) -> int:
    """Asks every question; returns how many replies are exactly right."""
    # The first answer may wait for an engine to start; it also shows what streaming looks like.
    first = ask(windlass, model, exams[0])
    with ThreadPoolExecutor(AT_ONCE) as pool:
        rest = list(pool.map(lambda exam: ask(windlass, model, exam), exams[1:]))
    right = 0
    for number, (exam, reply) in enumerate(zip(exams, [first, *rest], strict=True)):
        good = reply.strip() == exam.answer.strip()
        right += good
        if number < 3:
            mark = "[green]right[/green]" if good else "[red]wrong[/red]"
            console.print(f"  [dim]{exam.messages[-1]['content']}[/dim]")
            console.print(f"  {mark}  {escape(reply.strip())}", highlight=False, markup=True)
    return right


def ask(windlass: Windlass, model: str, exam: Exam) -> str:
    """One reply, streamed."""
    # The messages are a user's own rows, which no type of openai-python describes.
    create: Any = windlass.openai.chat.completions.create
    chunks = create(
        model=model,
        messages=exam.messages,
        stream=True,
        temperature=0,
        max_completion_tokens=ANSWER_TOKENS,
    )
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
