"""The pod template of an engine: upstream's image, unchanged, and the keeper beside it.

The keeper is a native sidecar, which starts first and ends last.
"""

from windlass.kubernetes.quantities import text_of
from windlass_agent.executors.kubernetes.engine_settings import ENGINE, KEEPER
from windlass_agent.executors.kubernetes.overlay import merge
from windlass_agent.executors.kubernetes.render import parts
from windlass_agent.executors.kubernetes.render.engine_plan import (
    ENDPOINT,
    MIB,
    OFFLINE,
    SCRATCH,
    EnginePlan,
)
from windlass_agent.executors.kubernetes.render.engine_server import (
    completer,
    server,
    shared_mounts,
    shared_volumes,
)
from windlass_agent.executors.kubernetes.render.parts import Object
from windlass_agent.executors.kubernetes.render.weights import (
    WEIGHTS,
    store_flags,
    store_mounts,
    store_volumes,
)
from windlass_agent.keeper.health import ALIVE, DRAINED, READY, STARTED

DOOR_PORT, HEALTH_PORT = 8443, 8080
KEEPER_MEMORY = 256 * MIB
# Of a container for which another pod has asked for memory and processors.
JOINED_REQUESTS = {"cpu": "10m", "memory": "0"}
# Beyond the drain: the engine's own end.
_END_SECONDS = 30
# Of an engine that does not answer: nothing of it is worth waiting for.
_HUNG_END_SECONDS = 10
# A day, for weights that come slowly.
_FETCH_SECONDS = 86_400
# LeaderWorkerSet's variable, in each container of a group.
_LEADER = "$(LWS_LEADER_ADDRESS)"


def template(plan: EnginePlan, *, is_member: bool = False) -> Object:
    """The pod template; of a member, the one of every node but the first of several."""
    settings = plan.settings
    authority = parts.require_authority(settings)
    engines = settings.engines
    shm = min(engines.shm_bytes, plan.memory_bytes // 2)
    engine = _engine(plan, is_member=is_member)
    holder = plan.holder
    claim = plan.name if holder is None else holder.claim
    joins = holder is not None
    spec = parts.pod_spec(settings, plan.accelerator, claim, joins=joins) | {
        "terminationGracePeriodSeconds": engines.drain + _END_SECONDS,
        "initContainers": [_keeper(plan, is_member=is_member), *server(plan, engine)],
        "containers": [completer(plan, engine)],
        "volumes": [
            {"name": "weights", "emptyDir": {"sizeLimit": str(plan.volume_bytes)}},
            {"name": "tmp", "emptyDir": {"sizeLimit": str(plan.scratch_bytes)}},
            {"name": "keeper", "emptyDir": {"medium": "Memory", "sizeLimit": str(16 * MIB)}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": str(shm)}},
            parts.identity_volume(),
            *store_volumes(plan.store),
            *shared_volumes(plan),
        ],
    }
    if plan.node_selector:
        spec["nodeSelector"] = dict(plan.node_selector)
    made = {
        "metadata": {
            # Kueue takes only pods without a queue of their own into a group.
            "labels": plan.labels
            | (plan.queue_labels if plan.nodes == 1 else {})
            # A pool has pods that answer.
            | ({} if is_member else plan.model_labels),
            "annotations": {parts.CA_ANNOTATION: authority},
        },
        "spec": spec,
    }
    return merge(made, engines.overlay)


def _engine(plan: EnginePlan, *, is_member: bool) -> Object:
    spec, engines = plan.engine_spec(is_member=is_member), plan.settings.engines
    environment = parts.variables(plan.accelerator) | OFFLINE | plan.kind.environment(spec)
    both = {"memory": str(plan.memory_bytes)}
    if plan.covered is None or "ephemeral-storage" in plan.covered:
        shared = plan.shared_bytes if plan.image.completer else 0
        both["ephemeral-storage"] = str(plan.volume_bytes + plan.scratch_bytes + shared)
    claims, counted = parts.devices(plan.accelerator, plan.gpus)
    both |= counted
    requests = {"cpu": text_of("cpu", round(1000 * engines.cpus))} | both
    if plan.holder is not None:
        # The pod that holds its devices has asked for them.
        requests |= JOINED_REQUESTS
    # The other pods of a group end with the first.
    alive = {} if is_member else {"livenessProbe": _alive()}
    return (
        _container(plan, ENGINE, plan.image.image, environment)
        | alive
        | {
            "command": plan.kind.command(spec),
            "workingDir": str(SCRATCH),
            "resources": claims | {"requests": requests, "limits": both},
            # Every end of the pod waits for its open requests, whoever ends it.
            "lifecycle": {"preStop": {"httpGet": {"path": DRAINED, "port": HEALTH_PORT}}},
            "volumeMounts": [
                {"name": "weights", "mountPath": str(WEIGHTS), "readOnly": True},
                {"name": "tmp", "mountPath": str(SCRATCH)},
                {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108
                *store_mounts(plan.store, writes=False),
                *shared_mounts(plan),
            ],
        }
    )


def _keeper(plan: EnginePlan, *, is_member: bool) -> Object:
    settings = plan.settings
    image = settings.engines.keeper
    memory = {"memory": str(KEEPER_MEMORY)}
    door: Object = {
        "readinessProbe": _probe(READY, every=2, failures=1),
        "ports": [{"name": "door", "containerPort": DOOR_PORT}],
    }
    made = _container(plan, KEEPER, image.image, parts.variables(None))
    return made | ({} if is_member else door) | {
        "restartPolicy": "Always",
        "command": [
            image.python, "-m", "windlass_agent.keeper",
            "--agent", settings.agent_address,
            "--agent-ca", f"{parts.SECRETS}/ca.crt",
            "--token-file", f"{parts.SECRETS}/token",
            "--engine", plan.kind.name,
            "--endpoint", ENDPOINT,
            "--weights", str(WEIGHTS),
            "--adapter-bytes", str(settings.engines.adapter_bytes),
            "--scratch", f"{SCRATCH}/keeper",
            "--port", str(DOOR_PORT),
            "--health-port", str(HEALTH_PORT),
            *store_flags(plan.store),
            *(["--leader", _LEADER] if is_member else []),
            *(["--tell-load"] if plan.tells_load and not is_member else []),
        ],
        "resources": {
            "requests": {"cpu": "50m"} | memory if plan.holder is None else dict(JOINED_REQUESTS),
            "limits": memory,
        },
        # The engine's container starts once the weights are there.
        "startupProbe": _probe(STARTED, every=1, failures=_FETCH_SECONDS),
        "volumeMounts": [
            {"name": "weights", "mountPath": str(WEIGHTS)},
            {"name": "keeper", "mountPath": str(SCRATCH)},
            {"name": parts.SECRETS_VOLUME, "mountPath": parts.SECRETS, "readOnly": True},
            *store_mounts(plan.store, writes=True),
        ],
    }  # fmt: skip


def _container(plan: EnginePlan, name: str, image: str, environment: dict[str, str]) -> Object:
    made: Object = {
        "name": name,
        "image": image,
        "env": [{"name": key, "value": value} for key, value in environment.items()],
        "securityContext": dict(parts.CONTAINER_SECURITY),
        # Else the end of a log that others' requests are in, in a status that members may read.
        "terminationMessagePolicy": "File",
    }
    if plan.settings.image_pull_policy:
        made["imagePullPolicy"] = plan.settings.image_pull_policy
    return made


def _alive() -> Object:
    probe = _probe(ALIVE, every=10, failures=3)
    return probe | {"terminationGracePeriodSeconds": _HUNG_END_SECONDS}


def _probe(path: str, *, every: int, failures: int) -> Object:
    return {
        "httpGet": {"path": path, "port": HEALTH_PORT},
        "periodSeconds": every,
        "failureThreshold": failures,
        "timeoutSeconds": 5,
    }
