"""`windlass engines`."""

from windlass.cli.framework.calling import Call, Limit, command, group
from windlass.cli.framework.columns import field, moment

app = group("Engines that serve models.")
_COLUMNS = {
    "ID": field("id"),
    "MODEL": field("model"),
    "STATE": field("phase"),
    "ENGINE": field("engine"),
    "CLUSTER": field("cluster_id"),
    "ADAPTERS": lambda item: ", ".join(item.get("adapters") or ()),
    "SINCE": moment("created_at"),
}


@command(app, "list")
def list_engines(call: Call, limit: Limit = 100) -> None:
    """Lists engines and the adapters that they have loaded."""
    call.out.items(list(call.client.pages("/v1/engines", limit=limit)), _COLUMNS)
