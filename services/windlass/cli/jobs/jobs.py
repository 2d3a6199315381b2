"""`windlass jobs`: fine-tuning jobs."""

import time
from collections.abc import Callable
from enum import StrEnum
from itertools import chain, islice
from typing import Annotated

import typer

from windlass.cli.framework import completion
from windlass.cli.framework.calling import Call, Yes, command, group
from windlass.cli.framework.columns import Columns, Item, field, moment, number
from windlass.cli.framework.listing import All, Limit, show_list
from windlass.cli.framework.output import OutputFormat
from windlass.cli.framework.prefixes import job_id
from windlass.cli.framework.values import pairs, seconds
from windlass.cli.framework.watching import Interval, Watch, watch
from windlass.cli.jobs import explaining, following, metrics, pods
from windlass.cli.jobs.creation import recipes
from windlass.cli.jobs.creation.command import create
from windlass.client.transport.urls import at

app = group("Fine-tuning jobs.")
PATH = "/v1/fine_tuning/jobs"
Id = Annotated[
    str,
    typer.Argument(
        metavar="JOB_ID", help="Id of a job, or a unique prefix.", autocompletion=completion.jobs
    ),
]


class StatusFilter(StrEnum):
    """OpenAI's statuses of jobs."""

    VALIDATING_FILES = "validating_files"
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


def _state(item: Item) -> str:
    return field("windlass.state")(item) or str(item.get("status", ""))


def _steps(item: Item) -> str:
    progress = (item.get("windlass") or {}).get("progress") or {}
    total = progress.get("total_steps")
    return f"{progress.get('step', 0)}/{total}" if total else ""


def _now(item: Item) -> str:
    from windlass.client.display.job_activity import activity, course

    return activity(item) or course(item)


_COLUMNS: dict[str, Callable[[Item], str]] = {
    "ID": field("id"),
    "STATE": _state,
    "STEP": _steps,
    "BASE": field("model"),
    "MODEL": field("fine_tuned_model"),
    "CREATED": moment("created_at"),
}
# What a job does or waits for is a sentence, which other columns would be cut for.
_WIDE = {**_COLUMNS, "NOW": _now}
_CHECKPOINTS = {
    "ID": field("id"),
    "STEP": field("step_number"),
    "TRAIN LOSS": number("metrics.train_loss"),
    "VALID LOSS": number("metrics.full_valid_loss"),
    "MODEL": field("fine_tuned_model_checkpoint"),
    "CREATED": moment("created_at"),
}
# Of methods whose loss says little.
_REWARDS = {
    "TRAIN REWARD": number("metrics.train_mean_reward"),
    "VALID REWARD": number("metrics.full_valid_mean_reward"),
}
_REWARDED = {
    **{name: _CHECKPOINTS[name] for name in ("ID", "STEP")},
    **_REWARDS,
    **{name: _CHECKPOINTS[name] for name in ("TRAIN LOSS", "MODEL", "CREATED")},
}


def _columns(call: Call) -> Columns:
    return _WIDE if call.out.form is OutputFormat.WIDE else _COLUMNS


command(app, "create")(create)
command(app, "recipes")(recipes.list_recipes)


@command(app, "list")
def list_jobs(
    call: Call,
    metadata: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Only jobs with this metadata.")
    ] = None,
    status: Annotated[
        list[StatusFilter] | None,
        typer.Option(help="Only jobs with this status. May be repeated."),
    ] = None,
    since: Annotated[
        int,
        typer.Option(
            parser=seconds,
            metavar="DURATION",
            help="Only jobs created within it, such as 12h.",
            show_default=False,
        ),
    ] = 0,
    limit: Limit = 20,
    everything: All = False,
    watching: Watch = False,
    interval: Interval = 2.0,
) -> None:
    """Lists jobs, newest first."""
    columns = _columns(call)
    wanted: Item = {f"metadata[{key}]": value for key, value in pairs(metadata).items()}
    wanted["status"] = [one.value for one in status or ()] or None
    wanted["created_after"] = int(time.time()) - since if since else None
    if not watching:
        found = call.client.pages(PATH, **wanted)
        show_list(call, found, columns, limit=limit, everything=everything)
        return
    most = None if everything else limit
    watch(
        call.out,
        lambda: list(call.client.pages(PATH, limit=most, **wanted)),
        columns,
        interval_seconds=interval,
    )


@command(app, "get")
def get(call: Call, job: Id, watching: Watch = False, interval: Interval = 2.0) -> None:
    """Shows one; with --watch until it has ended."""
    from windlass.client.resources.jobs import ENDED

    found = job_id(call.client, job)
    if watching:
        watch(
            call.out,
            lambda: [call.client.jobs.get(found)],
            _columns(call),
            interval_seconds=interval,
            until=lambda items: items[0]["status"] in ENDED,
        )
    else:
        call.out.item(call.client.jobs.get(found))


@command(app, "checkpoints")
def checkpoints(call: Call, job: Id, limit: Limit = 20, everything: All = False) -> None:
    """Lists a job's checkpoints, latest first; each is a model."""
    path = at(PATH, job_id(call.client, job), "checkpoints")
    found = call.client.pages(path)
    latest = list(islice(found, 1))
    columns = _CHECKPOINTS
    if any(show(item) for item in latest for show in _REWARDS.values()):
        columns = _REWARDED
    show_list(call, chain(latest, found), columns, limit=limit, everything=everything)


@command(app, "cancel")
def cancel(call: Call, job: Id, yes: Yes = False) -> None:
    """Ends a job for good."""
    found = job_id(call.client, job)
    call.confirm(f"Cancel {found}?", yes)
    call.out.item(call.client.jobs.act(found, "cancel"))


@command(app, "pause")
def pause(call: Call, job: Id) -> None:
    """Saves a checkpoint and gives the resources back."""
    call.out.item(call.client.jobs.act(job_id(call.client, job), "pause"))


@command(app, "resume")
def resume(call: Call, job: Id) -> None:
    """Goes on from the last checkpoint."""
    call.out.item(call.client.jobs.act(job_id(call.client, job), "resume"))


@command(app, "explain")
def explain(call: Call, job: Id) -> None:
    """Says why a job is where it is, or why it waits."""
    explaining.show(call, call.client.jobs.explain(job_id(call.client, job)))


@command(app, "events")
def events(
    call: Call,
    job: Id,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Print all events, then new ones until the job ends."),
    ] = False,
    limit: Limit = 20,
) -> None:
    """Shows a job's latest events, in order."""
    found = job_id(call.client, job)
    if follow:
        following.follow_events(call, found)
    else:
        following.show_events(call, found, limit)


@command(app, "logs")
def logs(
    call: Call,
    job: Id,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print new output until the job ends.")
    ] = False,
) -> None:
    """Prints a job's log."""
    pods.print_log(call, job_id(call.client, job), follow=follow)


command(app, "metrics")(metrics.metrics)
command(app, "exec")(pods.execute)
