"""`windlass clusters assign`, `unassign`, `assignments`."""

from typing import Annotated

import typer

from windlass.cli.clusters.kubernetes import Cluster
from windlass.cli.framework.calling import Call, Yes, command
from windlass.cli.framework.columns import Item, field
from windlass.cli.framework.values import pairs

Text = str | None
Project = Annotated[
    str,
    typer.Argument(metavar="PROJECT_ID", help="Or `everyone`, for engines of models for everyone."),
]


def _state(item: Item) -> str:
    if item.get("removing"):
        return "leaving"
    return "ready" if item.get("ready") else "not ready"


_COLUMNS = {
    "PROJECT": field("project_id"),
    "CLUSTER": field("cluster_id"),
    "NAMESPACE": field("namespace"),
    "QUEUE": field("cluster_queue"),
    "PRIORITY": field("priority_class"),
    "STATE": _state,
    "MESSAGE": field("message"),
}
_FIELDS = (
    "namespace", "cluster_queue", "local_queue", "priority_class", "price_micros", "node_selector",
)  # fmt: skip


def add_to(app: typer.Typer) -> None:
    """Registers the commands of this file with `windlass clusters`."""
    command(app, "assign")(assign)
    command(app, "unassign")(unassign)
    command(app, "assignments")(assignments)


def assign(
    call: Call,
    project_id: Project,
    cluster: Cluster,
    queue: Annotated[
        Text, typer.Option(help="ClusterQueue in which the project's jobs and engines wait.")
    ] = None,
    local_queue: Annotated[
        Text, typer.Option(help="Name of its LocalQueue; default: that of the ClusterQueue.")
    ] = None,
    namespace: Annotated[
        Text, typer.Option(help="Namespace of the project; default: derived from its id.")
    ] = None,
    priority_class: Annotated[
        Text, typer.Option(help="WorkloadPriorityClass of the project's jobs and engines.")
    ] = None,
    price: Annotated[
        float | None,
        typer.Option(min=0, help="Price of an accelerator-hour, used to choose between clusters."),
    ] = None,
    node_selector: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE", help="Labels of the nodes that the project's jobs may use."
        ),
    ] = None,
) -> None:
    """Lets a project use a cluster, or changes how; what is not said stays as it is."""
    found = call.client.clusters.find(cluster)["id"]
    how = _present(call, project_id, found)
    if queue is not None and local_queue is None and how.get("local_queue"):
        # It was named as the other queue, or is of no use behind this one.
        how["local_queue"] = ""
    said = {
        "namespace": namespace,
        "cluster_queue": queue,
        "local_queue": local_queue,
        "priority_class": priority_class,
        "price_micros": None if price is None else round(price * 1_000_000),
        "node_selector": pairs(node_selector) if node_selector is not None else None,
    }
    how |= {name: value for name, value in said.items() if value is not None}
    call.out.item(call.client.clusters.assign(project_id, found, **how))


def _present(call: Call, project_id: str, cluster_id: str) -> Item:
    for one in call.client.clusters.assignments(cluster_id, project_id=project_id):
        if not one["removing"]:
            return {name: one[name] for name in _FIELDS}
    return {}


def unassign(call: Call, project_id: Project, cluster: Cluster, yes: Yes = False) -> None:
    """Ends a project's use of a cluster, once its jobs there have ended."""
    found = call.client.clusters.find(cluster)["id"]
    call.confirm(f"Take {project_id} away from cluster {cluster}, with its namespace?", yes)
    call.client.clusters.unassign(project_id, found)
    call.out.note(f"{project_id} leaves {cluster} when its last job there has ended.")


def assignments(
    call: Call,
    cluster: Annotated[
        str,
        typer.Argument(metavar="CLUSTER", help="Name or id of a cluster; default: all clusters."),
    ] = "",
    of_project: Annotated[str, typer.Option("--of", help="Only assignments of this project.")] = "",
) -> None:
    """Lists who may use which cluster: the project's own, or all for an administrator."""
    found = call.client.clusters.find(cluster)["id"] if cluster else ""
    call.out.items(call.client.clusters.assignments(found, project_id=of_project), _COLUMNS)
