"""The operator's policy for a cluster, applied to what its agent reports; pure."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.jobs.v1.jobs_pb2 import Resources
from windlass.bounds import ADDRESS_LENGTH, MAX_ADDRESSES, MAX_MODEL_VERSIONS, MAX_SLOTS
from windlass.core.errors import InvalidArgument
from windlass.core.ids import is_identifier
from windlass.residency import rule as residency

# Executors without namespaces, and with them.
PROCESS = "process"
KUBERNETES = "kubernetes"
JOBS, ENGINES = "jobs", "engines"
ROLES = (JOBS, ENGINES)
# What counts of an agent's offer where the operator says nothing.
MAX_ENGINE_SLOTS = 64
MAX_AMOUNT = 2**31 - 1
MAX_BYTES = 2**50
MAX_DEVICES = 64
DIGEST_BYTES = 32
# Of a cluster's nodes, and flavors of each.
MAX_NODE_SHAPES, MAX_FLAVORS = 64, 8
# Of what an agent calls a device.
MAX_NAME = 100

_ADDRESS = re.compile(r"([A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(:\d+)?")
_FIELDS = (
    "executor", "roles", "shared", "addresses", "max_slots", "max_engine_slots", "geography",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class OperatorPolicy:
    """The operator's decisions; `run_folder` is set only for the agent inside a server."""

    executor: str = KUBERNETES
    roles: tuple[str, ...] = ROLES
    shared: bool = False
    addresses: tuple[str, ...] = ()
    # 0: the platform's own bound.
    max_slots: int = 0
    max_engine_slots: int = 0
    # Where it is; empty: nobody says.
    geography: str = ""
    run_folder: str = ""

    @property
    def embedded(self) -> bool:
        """True if the cluster is the one of the agent inside a server."""
        return bool(self.run_folder)


def registered(asked: pb.ClusterPolicy) -> OperatorPolicy:
    """The policy of a new cluster, defaults filled in; raises InvalidArgument."""
    return changed(OperatorPolicy(), asked, [name for name in _FIELDS if getattr(asked, name)])


def changed(
    policy: OperatorPolicy, asked: pb.ClusterPolicy, fields: Iterable[str]
) -> OperatorPolicy:
    """The policy with some fields as asked; raises InvalidArgument that names the field."""
    wanted = list(fields)
    if unknown := set(wanted) - set(_FIELDS):
        raise InvalidArgument(
            f"{min(unknown)!r} is not a field of a cluster's policy.", param="fields"
        )
    values = {name: getattr(asked, name) for name in wanted}
    for name in ("roles", "addresses"):
        if name in values:
            values[name] = tuple(dict.fromkeys(values[name]))
    return _checked(replace(policy, **values))


def _checked(policy: OperatorPolicy) -> OperatorPolicy:
    if policy.executor not in (PROCESS, KUBERNETES):
        raise InvalidArgument("executor must be process or kubernetes.", param="executor")
    if not policy.roles or set(policy.roles) - set(ROLES):
        raise InvalidArgument("roles must be jobs, engines or both.", param="roles")
    if policy.shared and policy.executor == KUBERNETES:
        raise InvalidArgument(
            "A Kubernetes cluster cannot be shared: each project needs an assignment, which "
            "gives it a namespace.",
            param="shared",
        )
    for name in ("max_slots", "max_engine_slots"):
        if not 0 <= getattr(policy, name) <= MAX_SLOTS:
            raise InvalidArgument(f"{name} must be between 0 and {MAX_SLOTS}.", param=name)
    residency.checked(policy.geography)
    _check_addresses(policy.addresses)
    return policy


def _check_addresses(addresses: Sequence[str]) -> None:
    if len(addresses) > MAX_ADDRESSES:
        raise InvalidArgument(f"At most {MAX_ADDRESSES} addresses are allowed.", param="addresses")
    for address in addresses:
        found = _ADDRESS.fullmatch(address)
        if (
            found is None
            or len(address) > ADDRESS_LENGTH
            or not 0 < int((found[3] or ":1")[1:]) < 65_536
        ):
            raise InvalidArgument(
                f"{address!r} is not an address; write HOST or HOST:PORT.", param="addresses"
            )


def endpoint(policy: OperatorPolicy, said: str, cluster_id: str, workload_id: str) -> str:
    """The gateway's address of an engine: its agent's, if the operator allows that.

    Else by the tunnel, which leads to no address but to the workload, wherever it is.
    """
    if not said:
        return ""
    return said if _is_allowed(policy, said) else f"tunnel://{cluster_id}/{workload_id}"


def is_direct(policy: OperatorPolicy, said: pb.DirectEndpoint) -> bool:
    """Returns True if gateways may connect to the listener that an agent says it has."""
    found = _ADDRESS.fullmatch(said.address)
    if found is None or not found[3] or len(said.certificate_digest) != DIGEST_BYTES:
        return False
    host = said.address.removesuffix(found[3])
    port = int(found[3][1:])
    return 0 < port < 65_536 and bool({host, said.address} & set(policy.addresses))


def _is_allowed(policy: OperatorPolicy, said: str) -> bool:
    try:
        parts = urlsplit(said)
        port = parts.port
    except ValueError:
        return False
    if parts.scheme == "unix":
        path = PurePosixPath(parts.path)
        plain = said == f"unix://{path}" and ".." not in path.parts
        # RUN_FOLDER/e-NAME/s: the agent makes the folder, its engine the socket.
        folder = path.parent
        named = folder.name.startswith("e-") and path.name == "s"
        return policy.embedded and plain and named and str(folder.parent) == policy.run_folder
    if parts.scheme not in ("http", "https") or said != f"{parts.scheme}://{parts.netloc}":
        return False
    host = parts.netloc.rpartition(":")[0] if port is not None else parts.netloc
    return "@" not in host and bool({host, parts.netloc} & set(policy.addresses))


def granted(policy: OperatorPolicy, said: pb.Capacity) -> pb.Capacity:
    """The part of an agent's capacity that counts: its role's, within the bounds."""
    capacity = pb.Capacity()
    capacity.CopyFrom(said)
    jobs, engines = JOBS in policy.roles, ENGINES in policy.roles
    capacity.slots = _within(said.slots, _max_slots(policy)) if jobs else 0
    capacity.engine_slots = _within(said.engine_slots, _max_engine_slots(policy)) if engines else 0
    capacity.gpus = _within(said.gpus, MAX_AMOUNT)
    capacity.cpus = _within(said.cpus, MAX_AMOUNT)
    capacity.memory_bytes = _within(said.memory_bytes, MAX_BYTES)
    for name, most in (("gpus", capacity.gpus), ("cpus", capacity.cpus)):
        setattr(capacity, f"used_{name}", _within(getattr(said, f"used_{name}"), most))
    capacity.used_memory_bytes = _within(said.used_memory_bytes, capacity.memory_bytes)
    if said.HasField("held_by_engines"):
        held = Resources(
            gpus=_within(said.held_by_engines.gpus, capacity.gpus),
            cpus=_within(said.held_by_engines.cpus, capacity.cpus),
            memory_bytes=_within(said.held_by_engines.memory_bytes, capacity.memory_bytes),
        )
        capacity.held_by_engines.CopyFrom(held)
    if not is_direct(policy, said.direct):
        capacity.ClearField("direct")
    del capacity.devices[:]
    capacity.devices.extend(map(_device, said.devices[:MAX_DEVICES]))
    del capacity.node_shapes[:]
    capacity.node_shapes.extend(map(_node_shape, said.node_shapes[:MAX_NODE_SHAPES]))
    del capacity.model_versions[:]
    if engines:
        capacity.model_versions.extend(_versions(said.model_versions))
    if said.HasField("each_engine"):
        capacity.each_engine.CopyFrom(_share(said.each_engine))
    if not jobs:
        del capacity.backends[:]
        del capacity.libraries[:]
    if not engines:
        del capacity.engines[:]
        del capacity.grouped_engines[:]
        del capacity.sleeping_engines[:]
        del capacity.training_engines[:]
        capacity.keeps_models = False
    return capacity


def _versions(said: Sequence[str]) -> list[str]:
    """The first ids of a list, each once; what is no id is left out."""
    return list(dict.fromkeys(filter(is_identifier, said[:MAX_MODEL_VERSIONS])))


def _share(said: pb.EngineShare) -> pb.EngineShare:
    return pb.EngineShare(
        gpus=_within(said.gpus, MAX_AMOUNT),
        cpu_millis=_within(said.cpu_millis, MAX_AMOUNT),
        memory_bytes=_within(said.memory_bytes, MAX_BYTES),
    )


def _device(said: pb.Device) -> pb.Device:
    return pb.Device(
        id=_printable(said.id),
        product=_printable(said.product),
        memory_bytes=_within(said.memory_bytes, MAX_BYTES),
        used=said.used,
    )


def _node_shape(said: pb.NodeShape) -> pb.NodeShape:
    return pb.NodeShape(
        resource=_printable(said.resource),
        product=_printable(said.product),
        devices=_within(said.devices, MAX_AMOUNT),
        device_memory_bytes=_within(said.device_memory_bytes, MAX_BYTES),
        memory_bytes=_within(said.memory_bytes, MAX_BYTES),
        nodes=_within(said.nodes, MAX_AMOUNT),
        flavors=map(_printable, said.flavors[:MAX_FLAVORS]),
    )


def _printable(said: str) -> str:
    """An agent's text on one line, reduced to printable characters."""
    return "".join(letter for letter in said[:MAX_NAME] if letter.isprintable())


def warnings(policy: OperatorPolicy, executor: str, said: pb.Capacity) -> list[str]:
    """The differences between an agent's report and the policy, in sentences."""
    found = []
    if executor not in ("", policy.executor):
        found.append(
            f"Its agent has the executor {executor} and was refused: the cluster is registered "
            f"for {policy.executor}."
        )
    for what, offered, most in (
        ("slots", said.slots, _max_slots(policy)),
        ("engine slots", said.engine_slots, _max_engine_slots(policy)),
    ):
        if offered > most:
            found.append(f"Its agent offers {offered} {what}, of which {most} count.")
    if said.HasField("direct") and not is_direct(policy, said.direct):
        where = _printable(said.direct.address)
        found.append(
            f"Its agent says that its engines are reached at {where}, which is no address of the "
            "cluster's: gateways use the tunnel."
        )
    return found


def _max_slots(policy: OperatorPolicy) -> int:
    return policy.max_slots or MAX_SLOTS


def _max_engine_slots(policy: OperatorPolicy) -> int:
    return policy.max_engine_slots or MAX_ENGINE_SLOTS


def _within(amount: int, most: int) -> int:
    return min(max(0, amount), most)
