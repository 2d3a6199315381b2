"""The server of an engine that a program of ours completes, in a container of upstream's image.

The container named after the engine is that program's: it answers, its end is the engine's, and it
starts and ends servers by a folder that both see (`engines.kept.neighbour`).
"""

from windlass_agent.engines.in_pods.kinds import COMPLETED
from windlass_agent.engines.kept.neighbour import script
from windlass_agent.executors.kubernetes.engine_settings import SERVER
from windlass_agent.executors.kubernetes.render import parts
from windlass_agent.executors.kubernetes.render.engine_plan import OFFLINE, SHARED, EnginePlan
from windlass_agent.executors.kubernetes.render.parts import Object

_VOLUME = "engine"
# It passes on what the server says.
_COMPLETER_CPU = "100m"


def shared_volumes(plan: EnginePlan) -> list[Object]:
    """The volume of both containers; none where the engine is complete."""
    if not plan.image.completer:
        return []
    return [{"name": _VOLUME, "emptyDir": {"sizeLimit": str(plan.shared_bytes)}}]


def shared_mounts(plan: EnginePlan) -> list[Object]:
    """The volume in each of them."""
    if not plan.image.completer:
        return []
    return [{"name": _VOLUME, "mountPath": str(SHARED)}]


def server(plan: EnginePlan, like: Object) -> list[Object]:
    """The server's container, with the devices and the memory that an engine's `like` has.

    A native sidecar: it is there before the engine, and ends after it. None for one that is
    complete.
    """
    if not plan.image.completer:
        return []
    made = {name: like[name] for name in ("env", "securityContext", "terminationMessagePolicy")}
    if "imagePullPolicy" in like:
        made["imagePullPolicy"] = like["imagePullPolicy"]
    return [
        made
        | {
            "name": SERVER,
            "image": plan.image.image,
            "restartPolicy": "Always",
            "command": script(SHARED),
            "workingDir": str(SHARED),
            "resources": like["resources"],
            "volumeMounts": [*like["volumeMounts"]],
        }
    ]


def completer(plan: EnginePlan, engine: Object) -> Object:
    """An engine's container as that of the program that completes its server."""
    if not plan.image.completer:
        return engine
    own = COMPLETED[plan.kind.name].memory_bytes(plan.weights_bytes)
    memory = {"memory": str(own)}
    return engine | {
        "image": plan.image.completer,
        "env": [
            {"name": name, "value": value}
            for name, value in (parts.variables(None) | OFFLINE).items()
        ],
        "resources": {
            # The disk is the server's to ask for.
            "requests": {"cpu": _COMPLETER_CPU} | memory,
            "limits": memory,
        },
    }
