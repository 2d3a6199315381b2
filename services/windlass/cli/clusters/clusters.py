"""`windlass clusters`."""

from collections.abc import Sequence
from typing import Annotated, Literal

import typer

from windlass.cli.clusters import assignments, details, kubernetes
from windlass.cli.clusters.kubernetes import Cluster
from windlass.cli.framework.calling import Call, Yes, command, group
from windlass.cli.framework.columns import Item, field, moment
from windlass.cli.framework.listing import All, Limit, show_list

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
    "GEOGRAPHY": field("geography"),
    "USED BY": lambda item: "all" if item.get("shared") else "assigned",
    "LAST SEEN": moment("last_seen_at"),
}


Executor = Annotated[
    Literal["process", "kubernetes"] | None,
    typer.Option(
        help="process for a machine, kubernetes for a Kubernetes cluster. Default: kubernetes."
    ),
]
Roles = Annotated[
    list[str] | None,
    typer.Option("--role", metavar="ROLE", help="jobs or engines; repeat for both. Default: both."),
]
Shared = Annotated[
    bool | None,
    typer.Option(
        "--shared/--dedicated", help="Open the machine to all projects, or only to those assigned."
    ),
]
Addresses = Annotated[
    list[str] | None,
    typer.Option(
        "--address", metavar="HOST[:PORT]", help="Address at which its engines may be reached."
    ),
]
MaxSlots = Annotated[
    int | None, typer.Option(min=0, help="Upper limit on the jobs that it may run at once.")
]
MaxEngines = Annotated[
    int | None, typer.Option(min=0, help="Upper limit on the engines that it may run at once.")
]
Geography = Annotated[
    str | None,
    typer.Option(
        metavar="GEOGRAPHY",
        help="Where it is, such as EU: projects of that geography use it alone. Empty: unlabelled.",
    ),
]


@command(app, "register")
def register(
    call: Call,
    name: str,
    executor: Executor = None,
    role: Roles = None,
    shared: Shared = None,
    address: Addresses = None,
    max_slots: MaxSlots = None,
    max_engine_slots: MaxEngines = None,
    geography: Geography = None,
) -> None:
    """Makes a cluster and shows its registration key, this once; with -q nothing but the key."""
    policy = _policy(executor, role, shared, address, max_slots, max_engine_slots, geography)
    _show_key(call, call.client.clusters.register(name, **policy))
    call.out.note("Give the registration key to the cluster's agent: it is not shown again.")


@command(app, "update")
def update(
    call: Call,
    cluster: Cluster,
    executor: Executor = None,
    role: Roles = None,
    shared: Shared = None,
    address: Addresses = None,
    max_slots: MaxSlots = None,
    max_engine_slots: MaxEngines = None,
    geography: Geography = None,
) -> None:
    """Changes what a cluster may be given; what is not said stays as it is."""
    policy = _policy(executor, role, shared, address, max_slots, max_engine_slots, geography)
    found = call.client.clusters.find(cluster)["id"]
    call.out.item(call.client.clusters.update(found, **policy))


def _policy(
    executor: str | None,
    roles: Sequence[str] | None,
    shared: bool | None,
    addresses: Sequence[str] | None,
    max_slots: int | None,
    max_engine_slots: int | None,
    geography: str | None,
) -> Item:
    said = {
        "executor": executor,
        "roles": list(roles) if roles else None,
        "shared": shared,
        # `--address ""` takes all away.
        "addresses": [one for one in addresses if one] if addresses else None,
        "max_slots": max_slots,
        "max_engine_slots": max_engine_slots,
        # `--geography ""` takes the label away.
        "geography": geography,
    }
    return {name: value for name, value in said.items() if value is not None}


@command(app, "rekey")
def rekey(call: Call, cluster: Cluster) -> None:
    """Shows a new registration key, for an agent that was away too long or is set up anew."""
    _show_key(call, call.client.clusters.rekey(call.client.clusters.find(cluster)["id"]))
    call.out.note("The cluster's present agent, if any, is out a minute after the key's use.")


def _show_key(call: Call, cluster: Item) -> None:
    if call.out.quiet and call.out.is_table:
        typer.echo(cluster["registration_key"])
        return
    call.out.item(cluster)


@command(app, "list")
def list_clusters(call: Call, limit: Limit = 100, everything: All = False) -> None:
    """Lists clusters, newest first, with what is in use of them."""
    found = call.client.clusters.all()
    show_list(call, found, _COLUMNS, limit=limit, everything=everything)


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
    details.show(call, found, inventory)


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
