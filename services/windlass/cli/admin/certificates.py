"""`windlass certificates`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from windlass.cli.framework.calling import Call, Yes, command, group
from windlass.cli.framework.columns import field, moment
from windlass.cli.framework.listing import All, Limit, show_list
from windlass.client.transport.urls import at

app = group("Certificates that the organization trusts in clients, and demands where active.")
PATH = "/v1/organization/certificates"
PROJECTS = "/v1/organization/projects"
CertificateId = Annotated[str, typer.Argument(metavar="CERTIFICATE_ID")]
Ids = Annotated[list[str], typer.Argument(metavar="CERTIFICATE_ID...")]
Project = Annotated[str, typer.Option("--in", metavar="PROJECT_ID", help="In this project alone.")]
Force = Annotated[
    bool,
    typer.Option(
        "--force", help="Whatever this call presents; for administrators of the platform."
    ),
]
_COLUMNS = {
    "ID": field("id"),
    "NAME": field("name"),
    "ACTIVE": lambda item: "yes" if item["active"] else "no",
    "EXPIRES": lambda item: moment("expires_at")(item["certificate_details"]),
    "CREATED": moment("created_at"),
}


@command(app, "add")
def add(
    call: Call,
    file: Annotated[Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False)],
    name: Annotated[str, typer.Option(help="Name for people.")] = "",
) -> None:
    """Uploads a certificate in PEM, of an authority or of one client; active nowhere yet."""
    body: dict[str, Any] = {"certificate": file.read_text(encoding="utf-8", errors="replace")}
    call.out.item(call.client.post(PATH, body | ({"name": name} if name else {})))


@command(app, "list")
def list_certificates(
    call: Call, inside: Project = "", limit: Limit = 20, everything: All = False
) -> None:
    """Lists certificates, and which are active."""
    pages = call.client.pages(_path(inside))
    show_list(call, pages, _COLUMNS, limit=limit, everything=everything)


@command(app, "get")
def get(call: Call, certificate_id: CertificateId) -> None:
    """Shows one with its content."""
    call.out.item(call.client.get(at(PATH, certificate_id), include="content"))


@command(app, "rename")
def rename(
    call: Call, certificate_id: CertificateId, name: Annotated[str, typer.Argument()]
) -> None:
    """Changes a name."""
    call.out.item(call.client.post(at(PATH, certificate_id), {"name": name}))


@command(app, "activate")
def activate(call: Call, ids: Ids, inside: Project = "", force: Force = False) -> None:
    """Demands certificates of every client, within a second."""
    _change(call, "activate", ids, inside, force=force)


@command(app, "deactivate")
def deactivate(call: Call, ids: Ids, inside: Project = "", force: Force = False) -> None:
    """Demands certificates no longer."""
    _change(call, "deactivate", ids, inside, force=force)


@command(app, "delete")
def delete(call: Call, certificate_id: CertificateId, yes: Yes = False) -> None:
    """Forgets a certificate that is active nowhere."""
    call.confirm(f"Forget {certificate_id}?", yes)
    call.client.delete(at(PATH, certificate_id))
    call.out.note(f"Deleted {certificate_id}.")


def _change(call: Call, what: str, ids: list[str], project: str, *, force: bool) -> None:
    body: dict[str, Any] = {"certificate_ids": ids} | ({"force": True} if force else {})
    answer = call.client.post(f"{_path(project)}/{what}", body)
    call.out.note(f"{what.capitalize()}d {', '.join(one['id'] for one in answer['data'])}.")


def _path(project: str) -> str:
    return at(PROJECTS, project, "certificates") if project else PATH
