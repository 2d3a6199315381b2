"""`windlass clusters`."""

import typer

from windlass.cli import assignments, cluster_details, kubernetes
from windlass.cli.calling import Call, Limit, Yes, command, group
from windlass.cli.columns import Item, field, moment
from windlass.cli.kubernetes import Cluster
from windlass.cli.output import Form

app = group("Clusters, where jobs and engines run.")
FORBIDDEN = 403


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
    """Makes a cluster and shows its registration key, this once; with -q nothing but the key."""
    _show_key(call, call.client.clusters.register(name))
    call.out.note("Give the registration key to the cluster's agent: it is not shown again.")


@command(app, "rekey")
def rekey(call: Call, cluster: Cluster) -> None:
    """Shows a new registration key, for an agent that was away too long or is set up anew."""
    _show_key(call, call.client.clusters.rekey(call.client.clusters.find(cluster)["id"]))
    call.out.note("The cluster's present agent, if any, is out a minute after the key's use.")


def _show_key(call: Call, cluster: Item) -> None:
    if call.out.quiet and call.out.form is Form.TABLE:
        typer.echo(cluster["registration_key"])
        return
    call.out.item(cluster)


@command(app, "list")
def list_clusters(call: Call, limit: Limit = 100) -> None:
    """Lists clusters, with what is in use of them."""
    call.out.items(call.client.clusters.all()[:limit], _COLUMNS)


@command(app, "get")
def get(call: Call, cluster: Cluster) -> None:
    """Shows one: its nodes, its accelerators by allocation, its queues."""
    from windlass.client import WindlassError

    clusters = call.client.clusters
    found = clusters.get(clusters.find(cluster)["id"])
    try:
        inventory = clusters.inventory(found["id"]) if found["executor"] != "process" else None
    except WindlassError as error:
        if error.status != FORBIDDEN:
            raise
        inventory = None
    cluster_details.show(call, found, inventory)


assignments.add_to(app)


command(app, "kubeconfig")(kubernetes.kubeconfig)
command(app, "token")(kubernetes.token)


@command(app, "unregister")
def unregister(call: Call, cluster: Cluster, yes: Yes = False) -> None:
    """Revokes the agent's credential and forgets the cluster."""
    found = call.client.clusters.find(cluster)["id"]
    call.confirm(f"Unregister cluster {cluster}?", yes)
    call.client.clusters.unregister(found)
    call.out.note(f"Unregistered {cluster}.")
