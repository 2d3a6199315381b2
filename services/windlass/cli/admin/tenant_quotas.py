"""`windlass quotas`: what an organization and its projects may have."""

from typing import Annotated

import typer

from windlass.cli.framework.calling import Call, command, group
from windlass.cli.framework.columns import Item, field
from windlass.cli.framework.values import size
from windlass.client.transport.urls import at

app = group("What an organization and its projects may have: jobs, engines, bytes.")
PATH = "/v1/quotas"
NONE = "none"
Of = Annotated[
    str,
    typer.Option("--of", metavar="PROJECT_ID", help="Id of a project; default: the organization."),
]


def _bound(item: Item) -> str:
    return str(item.get("bound") or NONE)


_COLUMNS = {
    "NAME": field("name"),
    "BOUND": _bound,
    "USED": lambda item: str(item.get("used") or ""),
    "FROM": lambda item: "set" if item.get("set") else "default",
}


@command(app, "list")
def list_quotas(call: Call, of: Of = "") -> None:
    """Lists those of the organization, or of a project."""
    call.out.items(call.client.get(PATH, project_id=of)["data"], _COLUMNS)


@command(app, "set")
def set_quota(
    call: Call,
    name: str,
    bound: Annotated[str, typer.Argument(help="A number, a size such as 500Gi, or `none`.")],
    of: Of = "",
) -> None:
    """Sets one; those of the organization are the operator's to set."""
    number = 0 if bound == NONE else size(bound)
    body = {"bound": number, "project_id": of}
    call.out.items(call.client.put(at(PATH, name), body)["data"], _COLUMNS)


@command(app, "unset")
def unset_quota(call: Call, name: str, of: Of = "") -> None:
    """Goes back to the installation's default."""
    call.out.items(call.client.delete(at(PATH, name), project_id=of)["data"], _COLUMNS)
