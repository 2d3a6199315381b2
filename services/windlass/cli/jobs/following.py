"""Following a job: its events, its log, its progress, and how it ended."""

import contextlib
import sys

import typer

from windlass.cli.framework.calling import Call
from windlass.cli.framework.columns import Item
from windlass.cli.framework.failures import INTERRUPTED, REFUSED, complain
from windlass.client.transport.urls import at

PATH = "/v1/fine_tuning/jobs"
_LOG = "waiting for the log"


def follow_job(call: Call, job_id: str) -> Item:
    """Shows progress on stderr until the job has ended; Ctrl-C leaves the job running."""
    from windlass.client.display import job_bar

    try:
        if call.out.quiet:
            return call.client.jobs.wait(job_id)
        return job_bar.follow_job(call.client, job_id, call.out.console())
    except KeyboardInterrupt as error:
        raise left(call, job_id) from error


def finish(call: Call, job: Item) -> None:
    """Prints a job that has ended; exit code 1 unless it succeeded."""
    call.out.item(job)
    judge(job, told=not call.out.quiet)


def judge(job: Item, *, told: bool) -> None:
    """Raises Exit with code 1 unless the job succeeded; says why unless its events have `told`."""
    if job["status"] == "succeeded":
        return
    failure = job.get("error") or {}
    code = f" ({failure['code']})" if failure.get("code") else ""
    why = f": {failure['message']}" if failure.get("message") and not told else ""
    complain(f"Job {job['id']} {job['status']}{why}{code}")
    raise typer.Exit(REFUSED)


def show_events(call: Call, job_id: str, limit: int) -> None:
    """Prints the latest events, oldest of them first."""
    from windlass.client.display.progress import event_line

    newest = list(call.client.pages(at(PATH, job_id, "events"), limit=limit))
    if call.out.is_table:
        for event in reversed(newest):
            typer.echo(event_line(event))
    else:
        call.out.items(newest[::-1], {})


def follow_events(call: Call, job_id: str) -> None:
    """Prints events until the job has ended, with a bar on a terminal."""
    from windlass.client.display import job_bar, progress

    try:
        if call.out.on_terminal:
            job = job_bar.follow_job(call.client, job_id, call.out.console(stderr=False))
        else:
            for event in call.client.jobs.events(job_id):
                call.out.stream(event, progress.event_line(event))
                sys.stdout.flush()
            job = call.client.jobs.get(job_id)
    except KeyboardInterrupt as error:
        raise left(call, job_id) from error
    judge(job, told=True)


def print_log(call: Call, job_id: str, *, follow: bool) -> None:
    """Copies the log's bytes to stdout."""
    try:
        with explained_wait(call, job_id, _LOG, follow=follow) as wait:
            for piece in call.client.jobs.log(job_id, follow=follow):
                wait.close()
                sys.stdout.buffer.write(piece)
                sys.stdout.buffer.flush()
    except KeyboardInterrupt as error:
        raise left(call, job_id) from error


def explained_wait(
    call: Call, job_id: str, reason: str, *, follow: bool = True
) -> contextlib.ExitStack:
    """Shows a reason on a terminal, or with `follow` what the job does, until it is closed."""
    from windlass.client.display.job_activity import watched_activity

    with contextlib.ExitStack() as wait:
        line = wait.enter_context(call.out.waiting(reason))
        if follow:
            show = lambda words: line.say(words or reason)  # noqa: E731
            wait.enter_context(watched_activity(call.client, job_id, show))
        return wait.pop_all()


def left(call: Call, job_id: str) -> typer.Exit:
    """The end of following by Ctrl-C: the job goes on."""
    call.out.note(f"The job keeps running. To follow it again: windlass jobs events -f {job_id}")
    return typer.Exit(INTERRUPTED)
