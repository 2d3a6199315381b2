"""`windlass projects`."""

from typing import Annotated

import typer

from windlass.cli.admin.erasures import Title, deletion
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
    "GEOGRAPHY": field("geography"),
    "CREATED": moment("created_at"),
}


@command(app, "create")
def create(
    call: Call,
    title: str,
    geography: Annotated[
        str | None,
        typer.Option(metavar="GEOGRAPHY", help="Where its data stays, such as EU; for good."),
    ] = None,
) -> None:
    """Makes a project."""
    body = {"title": title} if geography is None else {"title": title, "geography": geography}
    call.out.item(call.client.post(PATH, body))


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


@command(app, "models")
def models(
    call: Call,
    project_id: Id,
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", help="Model that it is for, and no other; or llama-3:*."),
    ] = None,
    deny: Annotated[
        list[str] | None, typer.Option("--deny", help="Model that it is not for, or llama-3:*.")
    ] = None,
    anything: Annotated[bool, typer.Option("--any", help="Take the list away.")] = False,
) -> None:
    """Shows, or bounds, the models of a project; running requests follow within a second."""
    if sum(map(bool, (allow, deny, anything))) > 1:
        raise typer.BadParameter("Give one of --allow, --deny and --any.")
    path = at("/v1/organization/projects", project_id, "model_permissions")
    if anything:
        call.client.delete(path)
    if allow or deny:
        body = {"mode": "allow_list" if allow else "deny_list", "model_ids": allow or deny}
        call.client.post(path, body)
    call.out.item({"id": project_id, **call.client.get(path)})


@command(app, "delete")
def delete(call: Call, project_id: Id, title: Title = "") -> None:
    """Ends a project at once, and erases all that it has after the grace period."""
    path = at(PATH, project_id)
    call.out.item(deletion(call, path, title, lambda: str(call.client.get(path)["title"])))


@command(app, "undelete")
def undelete(call: Call, project_id: Id) -> None:
    """Makes a deleted project live again, without its keys."""
    call.out.item(call.client.post(at(PATH, project_id, "undelete")))
