"""The root of the command tree."""

import os
from typing import Annotated

import typer

from windlass.cli.access import auth, keys, secrets, stored_contexts
from windlass.cli.admin import (
    audit,
    certificates,
    elevation,
    erasures,
    exports,
    external_keys,
    groups,
    members,
    orgs,
    projects,
    roles,
    tenant_quotas,
    usage,
)
from windlass.cli.clusters import clusters, queue_quota
from windlass.cli.framework.calling import command
from windlass.cli.framework.failures import unforeseen
from windlass.cli.identity import (
    directory,
    identity_providers,
    invites,
    mail_domains,
    workload_identity,
)
from windlass.cli.jobs import files, jobs, webhooks
from windlass.cli.models import chat, engines, models, score, stacks
from windlass.cli.server import admin, config, db, doctor, serve
from windlass.cli.tuning import tuning

EPILOG = (
    "Exit codes: 0 done, 1 the server refused or the job failed, 2 usage, 3 unreachable, "
    "130 interrupted."
)
app = typer.Typer(
    name="windlass",
    help="Fine-tune, serve and account for models across clusters.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Plain help: rich would take longer to load than everything else together.
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"windlass {version('windlass')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_version, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    pass


app.command("serve")(serve.serve)
app.command("doctor")(doctor.doctor)
command(app, "chat")(chat.chat)
command(app, "score")(score.score)
command(app, "usage")(usage.usage)
for name, noun in {
    "auth": auth.app,
    "context": stored_contexts.app,
    "orgs": orgs.app,
    "erasures": erasures.app,
    "exports": exports.app,
    "projects": projects.app,
    "members": members.app,
    "groups": groups.app,
    "invites": invites.app,
    "mail-domains": mail_domains.app,
    "identity-providers": identity_providers.app,
    "directory": directory.app,
    "roles": roles.app,
    "elevation": elevation.app,
    "keys": keys.app,
    "workload-identity": workload_identity.app,
    "secrets": secrets.app,
    "certificates": certificates.app,
    "external-keys": external_keys.app,
    "files": files.app,
    "models": models.app,
    "jobs": jobs.app,
    "webhooks": webhooks.app,
    "clusters": clusters.app,
    "quota": queue_quota.app,
    "quotas": tenant_quotas.app,
    "audit": audit.app,
    "engines": engines.app,
    "stacks": stacks.app,
    "tuning": tuning.app,
    "config": config.app,
    "db": db.app,
    "admin": admin.app,
}.items():
    app.add_typer(noun, name=name)


def main() -> None:
    """Entry point of the `windlass` script."""
    try:
        if "_WINDLASS_COMPLETE" in os.environ:
            from windlass.cli.framework.bash_completion import completes

            if completes(app):
                return
        app()
    except Exception as error:
        # What nobody foresaw: the whole goes to a file, and one sentence to the person.
        raise SystemExit(unforeseen(error)) from None
