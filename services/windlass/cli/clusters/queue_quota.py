"""`windlass quota`: Kueue's queues, cohorts and flavors in clusters."""

from pathlib import Path
from typing import Annotated, Any

import typer

from windlass.cli.clusters import queue_quota_setting
from windlass.cli.clusters.amounts import limit
from windlass.cli.clusters.kubernetes import Cluster
from windlass.cli.clusters.queue_quota_rows import rows
from windlass.cli.framework.calling import Call, Yes, command, group
from windlass.cli.framework.columns import Item, field
from windlass.cli.framework.failures import USAGE, Problem
from windlass.cli.framework.output import OutputFormat
from windlass.cli.framework.values import pairs

app = group("Quota of clusters: who may use how much of what, and who lends to whom.")
_COLUMNS = {
    "CLUSTER": field("cluster"),
    "QUEUE": field("queue"),
    "COHORT": field("cohort"),
    "FLAVOR": field("flavor"),
    "RESOURCE": field("resource"),
    "NOMINAL": field("nominal"),
    "USED": field("used"),
    "BORROWED": field("borrowed"),
    "LENT": field("lent"),
    "PENDING": field("pending"),
    "WEIGHT": field("weight"),
}
_PLACES = ("flavors", "cohorts", "cluster_queues")
_KINDS = {"queue": "cluster_queue", "cohort": "cohort", "flavor": "flavor"}

command(app, "set")(queue_quota_setting.set_queue)


@command(app, "show")
def show(
    call: Call,
    cluster: Annotated[
        str,
        typer.Argument(
            metavar="CLUSTER", help="Name or id of a cluster; default: all that have queues."
        ),
    ] = "",
) -> None:
    """Shows queues with what is theirs, in use, borrowed, lent and waited for."""
    known = {one["id"]: one for one in call.client.clusters.all()}
    wanted = [call.client.clusters.find(cluster)["id"]] if cluster else list(known)
    found = {one: call.client.clusters.quota(one) for one in wanted}
    if call.out.form in (OutputFormat.JSON, OutputFormat.YAML):
        documents = list(found.values())
        if cluster:
            call.out.item(documents[0])
        else:
            call.out.items(documents, {})
        return
    table = [row for one, quota in found.items() for row in rows(known[one]["name"], quota)]
    call.out.items(table, _COLUMNS)
    for one, quota in found.items():
        if quota["message"]:
            call.out.note(f"{known[one]['name']}: {quota['message']}")


@command(app, "flavor")
def flavor(
    call: Call,
    cluster: Cluster,
    name: str,
    node_label: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Labels of the nodes that belong to the flavor."),
    ] = None,
    toleration: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY[=VALUE][:EFFECT]", help="Taints that jobs in the flavor tolerate."
        ),
    ] = None,
) -> None:
    """Puts a flavor: a kind of node that quota is counted in."""
    tolerations = [_toleration(text) for text in toleration or ()]
    made = {"name": name, "node_labels": pairs(node_label), "tolerations": tolerations}
    _change(call, cluster, flavors=[made])
    call.out.note(f"Put flavor {name}.")


@command(app, "cohort")
def cohort(
    call: Call,
    cluster: Cluster,
    name: str,
    parent: Annotated[str, typer.Option(help="Parent cohort.")] = "",
    weight: Annotated[
        float, typer.Option(min=0, help="Fair-sharing weight among its siblings; 0 stands for 1.")
    ] = 0.0,
) -> None:
    """Puts a cohort: queues, and cohorts, that lend to each other what is idle."""
    made = {"name": name, "parent": parent, "fair_weight": weight}
    _change(call, cluster, cohorts=[made])
    call.out.note(f"Put cohort {name}.")


@command(app, "delete")
def delete(
    call: Call,
    cluster: Cluster,
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="KIND/NAME...", help="Objects, such as queue/NAME, cohort/NAME or flavor/NAME."
        ),
    ],
    yes: Yes = False,
) -> None:
    """Deletes queues, cohorts and flavors that Windlass manages."""
    call.confirm(f"Delete {', '.join(what)} of cluster {cluster}?", yes)
    named = [one.partition("/") for one in what]
    _change(call, cluster, delete=[f"{_KINDS.get(kind, kind)}/{name}" for kind, _, name in named])
    call.out.note(f"Deleted {', '.join(what)}.")


@command(app, "apply")
def apply(
    call: Call,
    cluster: Cluster,
    file: Annotated[
        Path, typer.Option("--file", "-f", exists=True, dir_okay=False, help="YAML or JSON file.")
    ],
) -> None:
    """Puts what a file holds, all or nothing: flavors, cohorts, cluster_queues, delete."""
    import yaml

    try:
        document = yaml.safe_load(file.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise Problem(f"{file} is not valid YAML: {error}", USAGE) from error
    # As `quota show -o yaml` prints it.
    if isinstance(document, dict) and isinstance(document.get("spec"), dict):
        document = document["spec"]
    if not isinstance(document, dict) or not set(document) <= {*_PLACES, "delete"}:
        raise Problem(
            f"{file} must have at least one of the keys {', '.join((*_PLACES, 'delete'))}.", USAGE
        )
    for queue in document.get("cluster_queues") or ():
        for quota in queue.get("quotas") or ():
            _read_amounts(quota)
    _change(call, cluster, **document)
    counts = ", ".join(f"{len(document[place] or ())} {place}" for place in document)
    call.out.note(f"Applied {counts}.")


def _read_amounts(quota: Item) -> None:
    resource = str(quota.get("resource", ""))
    for name in ("nominal", "borrowing_limit", "lending_limit"):
        if name in quota:
            quota[name] = limit(quota[name], resource)


def _change(call: Call, cluster: str, **change: Any) -> None:
    found = call.client.clusters.change_quota(call.client.clusters.find(cluster)["id"], **change)
    if not call.out.is_table:
        call.out.item(found)


def _toleration(text: str) -> Item:
    taint, _, effect = text.partition(":")
    key, sign, value = taint.partition("=")
    operator = "Equal" if sign else "Exists"
    return {"key": key, "operator": operator, "value": value, "effect": effect}
