"""`windlass projects`."""

from typing import Annotated

import typer

from windlass.cli.framework.calling import Call, Yes, command, group
from windlass.cli.framework.columns import field, moment
from windlass.cli.framework.listing import All, Limit, show_list
from windlass.client.transport.urls import at

app = group("Projects.")
PATH = "/v1/projects"
Id = Annotated[str, typer.Argument(metavar="PROJECT_ID")]
_COLUMNS = {
    "ID": field("id"),
    "TITLE": field("title"),
    "STATUS": field("status"),
    "CREATED": moment("created_at"),
}


@command(app, "create")
def create(call: Call, title: str) -> None:
    """Makes a project."""
    call.out.item(call.client.post(PATH, {"title": title}))


@command(app, "list")
def list_projects(
    call: Call,
    limit: Limit = 20,
    everything: All = False,
    archived: Annotated[
        bool, typer.Option("--archived", help="Include archived projects.")
    ] = False,
) -> None:
    """Lists the organization's projects, newest first."""
    include = "true" if archived else ""
    projects = call.client.pages(PATH, include_archived=include)
    show_list(call, projects, _COLUMNS, limit=limit, everything=everything)


@command(app, "get")
def get(call: Call, project_id: Id) -> None:
    """Shows one."""
    call.out.item(call.client.get(at(PATH, project_id)))


@command(app, "archive")
def archive(call: Call, project_id: Id, yes: Yes = False) -> None:
    """Ends a project's use for good; its records stay."""
    call.confirm(f"Archive project {project_id}?", yes)
    call.out.item(call.client.post(at(PATH, project_id, "archive")))
