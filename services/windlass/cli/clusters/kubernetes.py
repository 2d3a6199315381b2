"""`windlass clusters kubeconfig` and `windlass clusters token`: kubectl through Windlass."""

import base64
import json
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from windlass.cli.framework.calling import Call
from windlass.cli.framework.failures import USAGE, Problem
from windlass.cli.framework.output import OutputFormat

CREDENTIAL_VERSION = "client.authentication.k8s.io/v1"
Cluster = Annotated[str, typer.Argument(metavar="CLUSTER", help="Name or id of the cluster.")]


def kubeconfig(call: Call, cluster: Cluster) -> None:
    """Prints a kubeconfig for the project's namespace in a cluster; it holds no secret."""
    connection = _connection(call)
    found = call.client.clusters.find(cluster)
    access = call.client.clusters.access(found["id"])
    document = _document(access, found["id"], connection)
    if call.out.form is OutputFormat.JSON:
        typer.echo(json.dumps(document, indent=2))
        return
    import yaml

    typer.echo(yaml.safe_dump(document, sort_keys=False).rstrip())


def token(call: Call, cluster: Cluster) -> None:
    """Prints a short-lived credential, in the form that kubectl asks its plugins for."""
    access = call.client.clusters.access(call.client.clusters.find(cluster)["id"])
    until = datetime.fromtimestamp(access["expires_at"], UTC)
    credential = {
        "apiVersion": CREDENTIAL_VERSION,
        "kind": "ExecCredential",
        "status": {
            "token": access["token"],
            "expirationTimestamp": until.strftime("%Y-%m-%dT%H:%M:%SZ"),
        },
    }
    typer.echo(json.dumps(credential))


def _document(access: dict[str, Any], cluster_id: str, connection: list[str]) -> dict[str, Any]:
    name = f"windlass-{access['cluster_name']}"
    user = f"{name}-{access['namespace']}"
    command, *leading = _own_command()
    cluster = {"server": access["server"]}
    if access["ca"]:
        cluster["certificate-authority-data"] = base64.b64encode(access["ca"].encode()).decode()
    plugin = {
        "apiVersion": CREDENTIAL_VERSION,
        "command": command,
        "args": [*leading, "clusters", "token", cluster_id, *connection],
        "interactiveMode": "Never",
        "provideClusterInfo": False,
        "installHint": "pip install windlass",
    }
    context = {"cluster": name, "user": user, "namespace": access["namespace"]}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": user, "user": {"exec": plugin}}],
        "contexts": [{"name": user, "context": context}],
        "current-context": user,
    }


def _own_command() -> list[str]:
    """The command by which kubectl starts this program, from whatever folder and shell."""
    started = Path(sys.argv[0])
    if started.name == "windlass" and started.is_file():
        return [str(started.absolute())]
    installed = shutil.which("windlass")
    return [installed] if installed else [sys.executable, "-m", "windlass"]


def _connection(call: Call) -> list[str]:
    """The options by which the plugin finds the same server and key; never the key itself."""
    connection, flags = call.connection, call.flags
    if flags.api_key:
        raise Problem(
            "A kubeconfig holds no key: store it with `windlass auth login`, or set "
            "WINDLASS_API_KEY wherever kubectl runs.",
            USAGE,
        )
    kind, _, name = connection.origin.partition(" ")
    if flags.data is not None:
        options = ["--data", str(flags.data.absolute())]
    elif kind == "context":
        options = ["--context", name]
    else:
        options = ["--base-url", connection.base_url]
    if connection.project:
        options += ["--project", connection.project]
    if connection.organization:
        options += ["--organization", connection.organization]
    if connection.ca and kind != "context":
        options += ["--ca", str(Path(connection.ca).absolute())]
    return options
