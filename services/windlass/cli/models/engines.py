"""`windlass engines`."""

from windlass.cli.framework.calling import Call, command, group
from windlass.cli.framework.columns import field, moment
from windlass.cli.framework.listing import All, Limit, show_list
from windlass.cli.models import feeding, training

app = group("Engines that serve models.")
COLUMNS = {
    "ID": field("id"),
    "MODEL": field("model"),
    "STATE": field("phase"),
    "ENGINE": field("engine"),
    "CLUSTER": field("cluster_id"),
    "REPLICA": field("replica"),
    "PLACE": lambda item: str(item.get("queue_position") or ""),
    "REQUESTS": lambda item: _number(item.get("requests")),
    "WAIT": lambda item: _seconds(item.get("wait_seconds")),
    "CACHE": lambda item: _percent(item.get("cache_percent")),
    "GPU": lambda item: _percent(item.get("gpu_percent")),
    "WEIGHTS": lambda item: str(item["weight_version"]) if item.get("follow") else "",
    "ADAPTERS": lambda item: ", ".join(item.get("adapters") or ()),
    "WHY THERE": field("placement_reason"),
    "SINCE": moment("created_at"),
    "REASON": field("message"),
}


def _number(value: int | None) -> str:
    return "" if value is None else str(value)


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:g} s"


def _percent(value: int | None) -> str:
    return "" if value is None else f"{value}%"


@command(app, "list")
def list_engines(call: Call, limit: Limit = 100, everything: All = False) -> None:
    """Lists engines, newest first, and the adapters that they have loaded."""
    engines = call.client.pages("/v1/engines")
    show_list(call, engines, COLUMNS, limit=limit, everything=everything)


app.add_typer(feeding.app, name="feed")
command(app, "train")(training.train)
command(app, "checkpoint")(training.checkpoint)
command(app, "trainings")(training.trainings)
command(app, "steps")(training.steps)
command(app, "cancel")(training.cancel)
