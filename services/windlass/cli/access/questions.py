"""`windlass auth can-i` and `who-can`."""

from typing import Annotated

import typer

from windlass.cli.framework.calling import Call, command
from windlass.cli.framework.columns import field
from windlass.cli.framework.failures import REFUSED
from windlass.cli.framework.listing import All, Limit, show_list
from windlass.client.transport.urls import at

PATH = "/v1/permissions"
Permission = Annotated[str, typer.Argument(metavar="PERMISSION", help="Such as jobs.write.")]
Scope = Annotated[str, typer.Option("--in", help="Id of a project; default: your own.")]
_HOLDERS = {"USER": field("id"), "BY": lambda one: ", ".join(one["by"])}


def add_questions(app: typer.Typer) -> None:
    """Adds the questions to `windlass auth`."""

    @command(app, "can-i")
    def can_i(call: Call, permission: Permission, scope: Scope = "") -> None:
        """Says whether your key has a permission, and why not; fails where it does not."""
        answer = call.client.get(at(PATH, permission), project_id=scope)
        call.out.item({"id": permission, "allowed": answer["allowed"], "reason": answer["reason"]})
        if not answer["allowed"]:
            raise typer.Exit(REFUSED)

    @command(app, "who-can")
    def who_can(
        call: Call,
        permission: Permission,
        scope: Annotated[
            str, typer.Option("--in", help="Id of a project; default: in all of the organization.")
        ] = "",
        limit: Limit = 20,
        everything: All = False,
    ) -> None:
        """Lists the members who have a permission, and by which of their roles."""
        found = call.client.pages(at(PATH, permission, "holders"), project_id=scope)
        show_list(call, found, _HOLDERS, limit=limit, everything=everything)
