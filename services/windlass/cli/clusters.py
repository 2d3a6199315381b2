"""`windlass clusters`."""

from typing import Annotated

import typer

from windlass.cli.calling import Call, Limit, Yes, command, group
from windlass.cli.columns import Item, field, moment
from windlass.client.urls import at

app = group("Clusters, where jobs and engines run.")
PATH = "/v1/clusters"
Id = Annotated[str, typer.Argument(metavar="CLUSTER_ID")]


def _state(item: Item) -> str:
    return "live" if item.get("live") else "away"


def _share(used: str, all_of: str) -> str:
    return f"{used or 0}/{all_of or 0}"


_COLUMNS = {
    "ID": field("id"),
    "NAME": field("name"),
    "STATE": _state,
    "JOBS": lambda item: _share(field("capacity.used_slots")(item), field("capacity.slots")(item)),
    "GPUS": lambda item: _share(field("capacity.used_gpus")(item), field("capacity.gpus")(item)),
    "EXECUTOR": field("executor"),
    "LAST SEEN": moment("last_seen_at"),
}


@command(app, "register")
def register(call: Call, name: str) -> None:
    """Makes a cluster and shows its registration key, this once, for one agent."""
    call.out.item(call.client.post(PATH, {"name": name}))
    call.out.note("Give the registration key to the cluster's agent: it is not shown again.")


@command(app, "list")
def list_clusters(call: Call, limit: Limit = 100) -> None:
    """Lists clusters, with what is in use of them."""
    call.out.items(call.client.whole(PATH)[:limit], _COLUMNS)


@command(app, "get")
def get(call: Call, cluster_id: Id) -> None:
    """Shows one."""
    call.out.item(call.client.get(at(PATH, cluster_id)))


@command(app, "unregister")
def unregister(call: Call, cluster_id: Id, yes: Yes = False) -> None:
    """Revokes the agent's credential and forgets the cluster."""
    call.confirm(f"Unregister cluster {cluster_id}?", yes)
    call.client.delete(at(PATH, cluster_id))
    call.out.note(f"Unregistered {cluster_id}.")
