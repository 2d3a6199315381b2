"""Access to a job's pod: its log while it is written, and commands in it."""

import sys
from typing import Annotated

import typer

from windlass.cli.framework import completion
from windlass.cli.framework.calling import Call
from windlass.cli.framework.failures import USAGE, Problem
from windlass.cli.framework.prefixes import job_id
from windlass.cli.jobs import following

Id = Annotated[
    str,
    typer.Argument(
        metavar="JOB_ID", help="Id of a job, or a unique prefix.", autocompletion=completion.jobs
    ),
]


def print_log(call: Call, found: str, *, follow: bool) -> None:
    """Copies the log to stdout: from the job's pod where it runs in a cluster, else as stored."""
    if follow:
        # What it needs takes longer to load than all of `--help`.
        from windlass.cli.jobs.pod_logs import followed

        if followed(call, found):
            return
    following.print_log(call, found, follow=follow)


def execute(
    call: Call,
    job: Id,
    command: Annotated[list[str], typer.Argument(help="Command and its arguments, after --.")],
    stdin: Annotated[
        bool, typer.Option("--stdin", "-i", help="Pass standard input to the command.")
    ] = False,
    tty: Annotated[bool, typer.Option("--tty", "-t", help="Give the command a terminal.")] = False,
    node: Annotated[int, typer.Option(min=0, help="Rank of the node.")] = 0,
    container: Annotated[
        str, typer.Option("--container", "-c", help="Container; default: the runner's.")
    ] = "",
) -> None:
    """Runs a command in the pod of a job that runs in a cluster; ends with its exit code."""
    found = job_id(call.client, job)
    cluster_id = _cluster_of(call, found)
    if not cluster_id:
        raise Problem(f"{found} is not running in any cluster.")
    if tty and not (stdin and sys.stdin.isatty()):
        raise Problem("-t requires -i, and standard input must be a terminal.", USAGE)
    from windlass.cli.framework.terminal import attached
    from windlass.cli.jobs.pod_logs import running
    from windlass.client.resources.clusters import container_of

    kubernetes = call.client.clusters.kubernetes(cluster_id)
    pods = running(kubernetes.pods_of(found))
    if node >= len(pods):
        have = f"has {len(pods)} pods that run" if pods else "has no pod that runs now"
        raise Problem(f"{found} {have}.")
    pod = pods[node]
    code = attached(
        kubernetes,
        pod["metadata"]["name"],
        container or container_of(pod),
        command,
        stdin=stdin,
        tty=tty,
    )
    raise typer.Exit(code)


def _cluster_of(call: Call, found: str) -> str:
    return str((call.client.jobs.get(found).get("windlass") or {}).get("cluster") or "")
